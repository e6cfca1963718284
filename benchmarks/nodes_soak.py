#!/usr/bin/env python3
"""Kills ranks and launchers of a training on two nodes at random, starts again what a cluster would, and compares the results.

    benchmarks/nodes_soak.py                            1,000 kills
    benchmarks/nodes_soak.py --kills 50 --seed 3
    benchmarks/nodes_soak.py --goodput 10               ten minutes with a failure in each, and what share of the time trained

The nodes are launchers on this host that find each other (`lockstep run --nnodes 2 --rdzv-backend lockstep`), of two ranks of
`lockstep train` each. A kill is a SIGKILL of a rank, of either launcher, or of everything, at a random time after a start or after
the last kill, also while processes start, meet, or save. Every other run takes no snapshots but those of ranks
that survive; what is compared of its training losses is that they are there. A launcher that has ended otherwise than well is started again by the
same command, as systemd or Slurm would. Each run ends by itself; then its parameters, metrics and summary must be those of a run
that nobody disturbed, its snapshots whole, and no process, file or shared memory of it left. Ends with code 1 if anything differs.
"""

import argparse
import collections
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from faults import checks
from recovery_nodes import free_port, kill, members, ranks_in
from resume import outcome, sets

ROOT = Path(__file__).resolve().parent.parent
NODES = 2
LONGEST_SECONDS = 300  # of a run, and ten times as long as one that nobody disturbs for each kill
MOST_SECONDS_BETWEEN = {"snapshots": 2, "rescues": 4}  # kills; a rescue pays after half a second of training
# By turns: a run that saves often, of which all must be as undisturbed, and one in which those that are left save.
KINDS = {"snapshots": ["--log-interval", "3", "--snapshot-interval", "5steps", "--no-rescue"],
         "rescues": ["--log-interval", "1", "--snapshot-interval", "none", "--val-interval", "0"]}
VICTIMS = ["rank"] * 5 + ["joined"] * 2 + ["serving", "all"]  # which node's launcher, or a rank of either


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--kills-a-run", type=int, default=10, help="at most; drawn from 1 [10]")
    parser.add_argument("--goodput", type=float, default=0, help="instead: minutes of a training with a failure a minute")
    parser.add_argument("--no-spares", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lockstep", default=str(ROOT / "build/release/bin/lockstep"))
    return parser.parse_args()


class Run:
    """A training on two nodes; as a context it ends whatever is left of it."""

    def __init__(self, arguments, folder, train_flags):
        self.folder, self.output = folder, folder / "run"
        (folder / "tmp").mkdir(parents=True)
        self.mark = f"NODES_SOAK={folder}"
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder / "tmp"), "NODES_SOAK": str(folder)}
        meeting = ["--nnodes", str(NODES), "--rdzv-backend", "lockstep", "--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
        self.command = [arguments.lockstep, "run", *meeting, "--nproc-per-node", "2", "--max-restarts", "1000"]
        self.command += ["--"] if arguments.no_spares else ["--spares", "--"]
        self.command += [arguments.lockstep, "train", *train_flags, "--progress", "none", "--output", str(self.output)]
        self.launchers, self.codes = [None] * NODES, [None] * NODES
        self.starts = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for launcher in self.launchers:
            if launcher is not None and launcher.poll() is None:
                launcher.kill()
                launcher.wait()
        while left := members(self.mark):
            for process in left:
                kill(process)
            time.sleep(0.02)

    def start(self, node):
        with (self.folder / "errors").open("ab") as errors:
            self.launchers[node] = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors,
                                                    env=self.environment, start_new_session=True)
        self.starts += 1

    def look(self):
        """Starts launchers that have not ended well; returns whether all have."""
        for node, launcher in enumerate(self.launchers):
            if self.codes[node] == 0:
                continue
            self.codes[node] = None if launcher is None else launcher.poll()
            if launcher is None or self.codes[node] not in (None, 0):
                # A node whose peer has finished finds nobody to meet, and nothing to do.
                if self.codes[1 - node] != 0:
                    self.start(node)
        return 0 in self.codes and all(code is not None for code in self.codes)

    def wait_until(self, moment):
        """Goes on until then; returns whether the run has ended before."""
        while time.monotonic() < moment:
            if self.look():
                return True
            time.sleep(0.005)
        return False

    def strike(self, victim, source):
        """Kills, and returns the number of processes that were there to be killed."""
        running = [launcher.pid for launcher in self.launchers if launcher is not None and launcher.poll() is None]
        ranks = [rank for launcher in running for rank in ranks_in(launcher)]
        victims = {"rank": [source.choice(ranks)] if ranks else [], "all": running + ranks,
                   "serving": running[:1], "joined": running[1:]}[victim]
        for process in victims:
            kill(process)
        return len(victims)

    def rescues(self):
        return (self.folder / "errors").read_text(errors="replace").count("has lost its peers, and saved step")

    def tail(self):
        return (self.folder / "errors").read_text(errors="replace")[-3000:]


def results_of(run, kind):
    """Returns all that must not differ."""
    results = outcome.outcome(run.output)
    for name, value in results.items() if kind == "rescues" else ():
        for loss in {"loss", "train_loss"} & set(value if isinstance(value, dict) and " val" not in name else ()):
            value[loss] = value[loss] is not None
    return results


def complaints_of(run, kind, expected, shared_before):
    found = outcome.differences(expected, results_of(run, kind)) + outcome.broken_snapshots(run.output)
    found += outcome.leftovers(run.output)
    end = time.monotonic() + 20
    while (left := members(run.mark)) and time.monotonic() < end:
        time.sleep(0.01)
    found += [f"process {process} is left" for process in left]
    found += [f"left in TMPDIR: {path.name}" for path in (run.folder / "tmp").iterdir()]
    return found + [f"left in /dev/shm: {name}" for name in sorted(checks.shared_memory() - shared_before)]


def disturbed(arguments, folder, kind, flags, expected, duration, source, most_kills):
    """Returns how often which victim was killed, how often a rank saved for all, and what is wrong in the end."""
    kills, shared_before = collections.Counter(), checks.shared_memory()
    with Run(arguments, folder, flags) as run:
        begin = time.monotonic()
        planned = source.randint(1, min(arguments.kills_a_run, most_kills))
        is_over = False
        while sum(kills.values()) < planned and not is_over:
            is_over = run.wait_until(time.monotonic() + source.uniform(0, MOST_SECONDS_BETWEEN[kind]))
            victim = source.choice(VICTIMS)
            if not is_over and run.strike(victim, source) > 0:
                kills[victim] += 1
        if not is_over and not run.wait_until(begin + LONGEST_SECONDS + 10 * duration * planned):
            return kills, run.rescues(), [f"has not ended; {run.tail()}"]
        complaints = complaints_of(run, kind, expected, shared_before)
        return kills, run.rescues(), [*complaints, run.tail()] if complaints else []


def undisturbed(arguments, folder, kind, flags):
    """Returns the seconds that a run takes, and its results."""
    with Run(arguments, folder, flags) as run:
        begin = time.monotonic()
        if not run.wait_until(begin + LONGEST_SECONDS) or run.starts != NODES:
            sys.exit(f"the undisturbed run failed: {run.tail()}")
        duration = time.monotonic() - begin
        print(f"undisturbed, {kind}: {duration:.1f} s", flush=True)
        return duration, results_of(run, kind)


def soak(arguments, folder):
    sets.write_idx(folder / "sets", 210, 50)
    shared = ["--model", "mnist-small", "--data", f"mnist:{folder / 'sets'}", "--epochs", "40", "--batch-size", "8", "--backend",
              "gloo", "--resume", "auto"]
    source, all_kills, failed, runs, rescues = random.Random(arguments.seed), collections.Counter(), 0, 0, 0
    expected = {kind: undisturbed(arguments, folder / kind, kind, shared + flags) for kind, flags in KINDS.items()}
    try:
        while (done := sum(all_kills.values())) < arguments.kills:
            kind = list(KINDS)[runs % len(KINDS)]
            duration, results = expected[kind]
            kills, saved, complaints = disturbed(arguments, folder / f"run-{runs + 1}", kind, shared + KINDS[kind], results, duration,
                                                 source, arguments.kills - done)
            runs += 1
            all_kills += kills
            rescues += saved
            failed += bool(complaints)
            print(f"run {runs}, {kind}: {sum(kills.values())} kills, {saved} rescues,"
                  f" {'; '.join(complaints) if complaints else 'as undisturbed'}", flush=True)
    finally:  # also of one that is stopped
        print(f"{sum(all_kills.values())} kills in {runs} runs ({', '.join(f'{n} of {name}' for name, n in sorted(all_kills.items()))}),"
              f" {rescues} rescues: {failed} runs differ", flush=True)
    return failed


def steps_of(run):
    lines = [json.loads(line) for line in (run.output / "metrics.jsonl").read_text().splitlines() if line.endswith("}")]
    return max((line["step"] for line in lines if line["split"] == "train"), default=0)


def trained_steps(arguments, folder, seconds, kill_every, source):
    """Returns the steps that a training has made after that time, from its first line of metrics on."""
    flags = ["--model", "mnist-small", "--data", "fashion-mnist", "--epochs", "100000", "--batch-size", "128", "--backend", "gloo",
             "--log-interval", "10", "--val-interval", "never", "--resume", "auto"]
    with Run(arguments, folder, flags) as run:
        while not (run.output / "metrics.jsonl").exists() or steps_of(run) == 0:
            run.wait_until(time.monotonic() + 0.01)
        first, begin = steps_of(run), time.monotonic()
        next_kill = begin + (source.uniform(0, kill_every) if kill_every else float("inf"))
        while time.monotonic() < begin + seconds:
            run.wait_until(min(next_kill, begin + seconds))
            if time.monotonic() >= next_kill:
                run.strike(source.choice(["rank", "rank", "joined", "serving"]), source)
                next_kill += kill_every
        return steps_of(run) - first


def goodput(arguments, folder):
    source, minute = random.Random(arguments.seed), 60
    shares = []
    for number in range(2):
        plain = trained_steps(arguments, folder / f"plain-{number}", 2 * minute, None, source) / (2 * minute)
        seconds = arguments.goodput * minute
        shares.append(trained_steps(arguments, folder / f"killed-{number}", seconds, minute, source) / seconds / plain)
        print(f"goodput with a failure a minute: {shares[-1]:.1%} of {plain:.0f} steps/s", flush=True)
    print(f"goodput: {statistics.mean(shares):.1%}")
    return 0


def main():
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a run that is cut short leaves nothing
    with tempfile.TemporaryDirectory(prefix="nodes-soak-") as name:
        return goodput(arguments, Path(name)) if arguments.goodput else soak(arguments, Path(name))


if __name__ == "__main__":
    sys.exit(bool(main()))
