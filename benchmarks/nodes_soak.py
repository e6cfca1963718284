#!/usr/bin/env python3
"""Kills ranks and launchers of a training on two nodes at random, starts again what a cluster would, and compares the results.

    benchmarks/nodes_soak.py                            1,000 kills
    benchmarks/nodes_soak.py --kills 50 --seed 3
    benchmarks/nodes_soak.py --parallel fsdp --kills 100    the ranks share the model: all runs take snapshots, as nobody could rescue
    benchmarks/nodes_soak.py --elastic --kills 500      worlds of one to three nodes, whose launchers are killed, drained and join
    benchmarks/nodes_soak.py --goodput 10               ten minutes with a failure in each, and what share of the time trained

The nodes are launchers on this host that find each other (`lockstep run --nnodes 2 --rdzv-backend lockstep`), of two ranks of
`lockstep train` each. A kill is a SIGKILL of a rank, of either launcher, or of everything, at a random time after a start or after
the last kill, also while processes start, meet, or save. Every other run takes no snapshots but those of ranks
that survive; what is compared of its training losses is that they are there. A launcher that has ended otherwise than well is started again by the
same command, as systemd or Slurm would. Each run ends by itself; then its parameters, metrics and summary must be those of a run
that nobody disturbed, its snapshots whole, and no process, file or shared memory of it left. Ends with code 1 if anything differs.

With --elastic the nodes are `--nnodes 1:3`, and an event is also a SIGTERM to a launcher, the one that serves included, or a
node that was away and joins, or a stranger that comes with the folder of another run of the same command; in half of the runs every fifth
fsync takes up to a second and a half. No two worlds may ever run side by side, and each run ends as the undisturbed one but for what depends
on the number of ranks: all its epochs, each sample of each once but for padding, a test loss near the undisturbed one. The stranger must be
refused, or find no world, and its folder stay as it was.
"""

import collections
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from commands import parser_of, stat_of
from faults import checks
from recovery_nodes import free_port, kill, members, ranks_in
from resume import outcome, sets

NODES = 2
LONGEST_SECONDS = 300  # of a run, and ten times as long as one that nobody disturbs for each kill
MOST_SECONDS_BETWEEN = {"snapshots": 2, "rescues": 4}  # kills; a rescue pays after half a second of training
# By turns: a run that saves often, of which all must be as undisturbed, and one in which those that are left save.
KINDS = {"snapshots": ["--log-interval", "3", "--snapshot-interval", "5steps", "--no-rescue"],
         "rescues": ["--log-interval", "1", "--snapshot-interval", "none", "--val-interval", "0"]}
VICTIMS = ["rank"] * 5 + ["joined"] * 2 + ["serving", "all"]  # which node's launcher, or a rank of either
EVENTS = ["rank"] * 3 + ["launcher"] * 3 + ["serving"] * 4 + ["drain"] * 3 + ["drain serving"] * 2 + ["all"] + ["stranger"] * 2
ENDS_OF_STRANGERS = {2: "refused", 3: "of several runs at the start", 5: "found nobody"}
LONGEST_ABSENCE = 8  # seconds, of a node that was killed or drained
NEAR = 0.15  # of the undisturbed test loss
MOST_PADDING = 30  # samples of an epoch that ranks get twice, so that all have as many, at each of a few changes of size
SLOW_FSYNC = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
int fsync(int file) {
  static int is_drawn;
  if (!is_drawn++) srand48(getpid());
  if (drand48() < 0.2) usleep((useconds_t)(drand48() * 1500000));
  return ((int (*)(int))dlsym(RTLD_NEXT, "fsync"))(file);
}
"""


def parse_arguments():
    parser = parser_of(__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--kills-a-run", type=int, default=10, help="at most; drawn from 1 [10]")
    parser.add_argument("--goodput", type=float, default=0, help="instead: minutes of a training with a failure a minute")
    parser.add_argument("--elastic", action="store_true", help="worlds of one to three nodes; --kills counts all events")
    parser.add_argument("--parallel", choices=["ddp", "fsdp"], default="ddp")
    parser.add_argument("--no-spares", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="with --elastic: a folder for the logs of runs that differ")
    return parser.parse_args()


class Run:
    """A training on two nodes; as a context it ends whatever is left of it."""

    nodes = str(NODES)

    def __init__(self, arguments, folder, train_flags):
        self.folder, self.output = folder, folder / "run"
        (folder / "tmp").mkdir(parents=True)
        self.mark = f"NODES_SOAK={folder}"
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder / "tmp"), "NODES_SOAK": str(folder)}
        meeting = ["--nnodes", self.nodes, "--rdzv-backend", "lockstep", "--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
        self.command = [arguments.lockstep, "run", *meeting, "--nproc-per-node", "2", "--max-restarts", "1000"]
        self.command += ["--"] if arguments.no_spares else ["--spares", "--"]
        self.command += [arguments.lockstep, "train", *train_flags, "--progress", "none", "--output", "run"]
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

    def log_of(self, node):
        return self.folder / "errors"

    def start(self, node):
        with self.log_of(node).open("ab") as errors:
            self.launchers[node] = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors,
                                                    env=self.environment, start_new_session=True, cwd=self.folder)
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


class ElasticRun(Run):
    """A training on one to three nodes, each of which comes back some time after it has gone."""

    nodes = "1:3"

    def __init__(self, arguments, folder, train_flags, source):
        super().__init__(arguments, folder, train_flags)
        self.command = [word for word in self.command if word != "--spares"]  # whose environment does not say of which world they are
        self.command[2:2] = ["--rdzv-conf", "last_call_timeout=2"]
        self.source = source
        self.launchers, self.codes, self.away_until = [None] * 3, [None] * 3, [0.0] * 3
        self.worlds_before, self.complaints = set(), []
        self.began, self.log, self.read = time.monotonic(), [], collections.Counter()
        self.stranger, self.strangers_files, self.strangers_ends = None, {}, collections.Counter()

    def note(self, text):
        self.log.append(f"{time.monotonic() - self.began:8.2f} {text}")

    def note_output(self):
        for name in ("node 0", "node 1", "node 2", "stranger.txt"):
            path = self.folder / name
            if not path.exists():
                continue
            with path.open("rb") as errors:
                errors.seek(self.read[name])
                lines = errors.read().rpartition(b"\n")[0]
            self.read[name] += len(lines) + 1 if lines else 0
            for line in lines.decode(errors="replace").splitlines():
                self.note(f"{name}: {line}")

    def log_of(self, node):
        return self.folder / f"node {node}"

    def start(self, node):
        super().start(node)
        self.note(f"node {node} starts as {self.launchers[node].pid}")

    def tail(self):
        self.note_output()
        return "\n".join(["", *self.log[-30:]])

    def look(self):
        self.note_output()
        now = time.monotonic()
        for node, launcher in enumerate(self.launchers):
            if self.codes[node] == 0:
                continue
            code = None if launcher is None else launcher.poll()
            if code is not None and self.codes[node] is None:
                self.away_until[node] = now + self.source.uniform(0, LONGEST_ABSENCE)
                self.note(f"node {node} has ended with {code}")
            self.codes[node] = code
            if (launcher is None or code not in (None, 0)) and now >= self.away_until[node] and 0 not in self.codes:
                self.start(node)
                self.codes[node] = None
        return 0 in self.codes and all(code is not None for code in self.codes)

    def wait_until(self, moment):
        while time.monotonic() < moment:
            if self.look():
                return True
            self.look_for_rivals()
            time.sleep(0.05)
        return False

    def worlds(self):
        """Returns the worlds of the ranks that are there now, each with the ranks: of one look at all processes."""
        launchers = {each.pid: node for node, each in enumerate(self.launchers) if each is not None and each.poll() is None}
        found = collections.defaultdict(list)
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                node = launchers.get(int(stat_of(entry)[1]))
                words = (entry / "environ").read_text().split("\0") if node is not None else []
            except (OSError, ValueError):  # it has ended, or its name is cut within a letter
                continue
            variables = dict(word.split("=", 1) for word in words if "=" in word)
            if "RANK" in variables and "LOCKSTEP_STORE" in variables:
                world = variables["LOCKSTEP_STORE"], variables.get("LOCKSTEP_GENERATION")
                found[world].append(f"{entry.name} of node {node}")
        return found

    def look_for_rivals(self):
        """Ranks of one generation only may be there; those of a launcher that was killed are for some milliseconds."""
        worlds = self.worlds()
        if len(worlds) > 1:
            self.note(f"two worlds: {dict(worlds)}")
        if len(worlds) > 1 and set(worlds) == self.worlds_before:
            self.complaints.append(f"two worlds side by side: {sorted(worlds)}")
        self.worlds_before = set(worlds)

    def send_stranger(self, folder):
        """Starts one with this folder, which holds another run, if none is there, but ranks and a snapshot are; returns how many.

        Before the first snapshot the stranger's run is the only one that there is: nodes that meet anew go on with it.
        """
        self.look_at_stranger()
        if self.stranger or not self.worlds() or not any(self.output.glob("snapshots/step-*/state.json")):
            return 0
        home = self.folder / "stranger"
        if not home.exists():
            shutil.copytree(folder, home / "run")
        self.strangers_files = files_in(home)
        command = [word.replace("last_call_timeout=2", "last_call_timeout=2,is_host=false,join_timeout=10") for word in self.command]
        with (self.folder / "stranger.txt").open("ab") as errors:
            self.stranger = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, env=self.environment,
                                             start_new_session=True, cwd=home)
        self.note(f"a stranger starts as {self.stranger.pid}")
        return 1

    def look_at_stranger(self, seconds=0):
        """Notes how it ended, waiting for so long."""
        if self.stranger is None:
            return
        try:
            code = self.stranger.wait(seconds)
        except subprocess.TimeoutExpired:
            return
        self.strangers_ends[code] += 1
        self.note(f"the stranger has ended with {code}")
        self.stranger = None
        if code not in ENDS_OF_STRANGERS:
            self.complaints.append(f"a node with the folder of another run ended with {code}")
        if files_in(self.folder / "stranger") != self.strangers_files:
            self.complaints.append("the folder of another run has changed")

    def __exit__(self, *_):
        if self.stranger is not None:
            self.stranger.kill()
            self.stranger.wait()
        super().__exit__()

    def strike(self, victim, source):
        running = [launcher for launcher in self.launchers if launcher is not None and launcher.poll() is None]
        serving = [launcher for launcher in running if self.serves(launcher.pid)]
        ranks = [rank for launcher in running for rank in ranks_in(launcher.pid)]
        group = serving if "serving" in victim else running
        victims = {"rank": [source.choice(ranks)] if ranks else [], "all": [each.pid for each in running] + ranks}.get(
            victim, [source.choice(group).pid] if group else [])
        for process in victims:
            kill(process, signal.SIGTERM if "drain" in victim else signal.SIGKILL)
        self.note(f"{victim}: {victims}")
        return len(victims)

    @staticmethod
    def serves(process):
        """Says whether a launcher has connections of others, which only the one that serves has."""
        sockets = set()
        try:
            for link in Path(f"/proc/{process}/fd").iterdir():
                target = os.readlink(link)
                if target.startswith("socket:["):
                    sockets.add(target[8:-1])
            lines = [line.split() for line in Path(f"/proc/{process}/net/tcp").read_text().splitlines()[1:]]
        except OSError:
            return False
        listening = {line[1] for line in lines if line[3] == "0A" and line[9] in sockets}
        return any(line[1] in listening for line in lines if line[3] == "01" and line[9] in sockets)


def files_in(folder):
    """Returns each file's content below a folder, but for locks, which whoever looks into it takes."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file() and "lock" not in path.name}


def elastic_complaints(run, expected, shared_before):
    run.look_at_stranger(seconds=60)
    if run.stranger:
        run.complaints.append("a node with the folder of another run has not ended")
    found = list(dict.fromkeys(run.complaints))
    results = outcome.outcome(run.output)
    for name, value in expected.items():
        if not name.startswith("summary epoch"):
            continue
        samples = results.get(name, {}).get("samples", 0)
        if not 0 <= samples - value["samples"] <= MOST_PADDING:
            found.append(f"{name}: {samples} samples, not {value['samples']}")
    loss, wanted = results["summary test_loss"], expected["summary test_loss"]
    if abs(loss - wanted) > NEAR * wanted + NEAR:
        found.append(f"a test loss of {loss}, undisturbed {wanted}")
    found += outcome.broken_snapshots(run.output) + outcome.leftovers(run.output)
    return found + what_is_left(run, shared_before)


def slow_fsync(folder):
    (folder / "slow.c").write_text(SLOW_FSYNC)
    subprocess.run([shutil.which("cc") or "clang-14", "-shared", "-fPIC", "-o", folder / "slow.so", folder / "slow.c", "-ldl"], check=True)
    return folder / "slow.so"


def train_flags(arguments, folder):
    is_sharded = arguments.parallel == "fsdp"  # which exchanges more often, and so trains for fewer epochs
    flags = ["--model", "mnist-small", "--data", f"mnist:{folder / 'sets'}", "--epochs", "10" if is_sharded else "40", "--batch-size", "8",
             "--backend", "gloo", "--resume", "auto", "--parallel", arguments.parallel]
    return flags + (["--opt", "adamw", "--clip-grad", "1", "--model-ema"] if is_sharded else [])


def soak_elastic(arguments, folder):
    sets.write_idx(folder / "sets", 210, 50)
    flags = [*train_flags(arguments, folder), "--snapshot-interval", "5steps"]
    slow, source = slow_fsync(folder), random.Random(arguments.seed)
    all_events, strangers, failed, runs = collections.Counter(), collections.Counter(), 0, 0
    with ElasticRun(arguments, folder / "undisturbed", flags, source) as run:
        begin = time.monotonic()
        if not run.wait_until(begin + LONGEST_SECONDS) or run.starts != 3 or run.complaints:
            sys.exit(f"the undisturbed run failed: {run.complaints} {run.tail()}")
        expected, duration = outcome.outcome(run.output), time.monotonic() - begin
        print(f"undisturbed: {duration:.1f} s", flush=True)
    try:
        while (done := sum(all_events.values())) < arguments.kills:
            runs += 1
            events, shared_before, name = collections.Counter(), checks.shared_memory(), f"run-{runs}"
            with ElasticRun(arguments, folder / name, flags, source) as run:
                is_slow = runs % 2 == 0
                if is_slow:
                    run.environment["LD_PRELOAD"] = str(slow)
                begin, is_over = time.monotonic(), False
                planned = min(source.randint(1, arguments.kills_a_run), arguments.kills - done)
                while sum(events.values()) < planned and not is_over:
                    is_over = run.wait_until(time.monotonic() + source.uniform(0, LONGEST_ABSENCE))
                    event = source.choice(EVENTS)
                    strike = run.send_stranger if event == "stranger" else run.strike
                    what = (folder / "undisturbed/run",) if event == "stranger" else (event, source)
                    if not is_over and strike(*what) > 0:
                        events[event] += 1
                limit = begin + LONGEST_SECONDS + (10 * duration + 60) * planned
                is_over = is_over or run.wait_until(limit)
                complaints = elastic_complaints(run, expected, shared_before) if is_over else ["has not ended"]
                all_events += events
                strangers += run.strangers_ends
                failed += bool(complaints)
                text = "; ".join([*complaints, run.tail()]) if complaints else "as undisturbed"
                if complaints and arguments.keep:
                    arguments.keep.mkdir(parents=True, exist_ok=True)
                    log = arguments.keep / f"seed-{arguments.seed}-{name}.log"
                    log.write_text("\n".join([*complaints, *run.log, ""]))
                print(f"run {runs}{', slow fsync' if is_slow else ''}: {sum(events.values())} events, {time.monotonic() - begin:.0f} s, {text}",
                      flush=True)
            shutil.rmtree(folder / name, ignore_errors=True)
    finally:
        print(f"{sum(all_events.values())} events in {runs} runs ({', '.join(f'{n} of {name}' for name, n in sorted(all_events.items()))}):"
              f" {failed} runs differ", flush=True)
        print("strangers:", ", ".join(f"{n} {ENDS_OF_STRANGERS.get(code, code)}" for code, n in strangers.items()) or "none", flush=True)
    return failed


def results_of(run, kind):
    """Returns all that must not differ."""
    results = outcome.outcome(run.output)
    for name, value in results.items() if kind == "rescues" else ():
        for loss in {"loss", "train_loss"} & set(value if isinstance(value, dict) and " val" not in name else ()):
            value[loss] = value[loss] is not None
    return results


def complaints_of(run, kind, expected, shared_before):
    found = outcome.differences(expected, results_of(run, kind)) + outcome.broken_snapshots(run.output)
    return found + outcome.leftovers(run.output) + what_is_left(run, shared_before)


def what_is_left(run, shared_before):
    end = time.monotonic() + 20
    while (left := members(run.mark)) and time.monotonic() < end:
        time.sleep(0.01)
    found = [f"process {process} is left" for process in left]
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
    shared = train_flags(arguments, folder)
    source, all_kills, failed, runs, rescues = random.Random(arguments.seed), collections.Counter(), 0, 0, 0
    kinds = ["snapshots"] if arguments.parallel == "fsdp" else list(KINDS)
    expected = {kind: undisturbed(arguments, folder / kind, kind, shared + KINDS[kind]) for kind in kinds}
    try:
        while (done := sum(all_kills.values())) < arguments.kills:
            kind = kinds[runs % len(kinds)]
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
        task = goodput if arguments.goodput else soak_elastic if arguments.elastic else soak
        return task(arguments, Path(name))


if __name__ == "__main__":
    sys.exit(bool(main()))
