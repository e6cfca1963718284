#!/usr/bin/env python3
"""Kills runs at random moments, resumes them, and compares their results with those of uninterrupted runs.

    benchmarks/soak.py                         200 runs, each killed once, over all configurations
    benchmarks/soak.py --runs 1000 --most-kills 4
    benchmarks/soak.py --only ddp --seed 7 --run 31     repeat one of them

Each run is started by `lockstep train --resume auto`, killed by SIGKILL (one rank, the launcher, or everything at once; at any
time, or while saving) and started again by the same command until it ends. Then the parameters' hash, the bytes of
every file of weights, the metric lines joined over the restarts and the summary must equal the uninterrupted run's. After each
kill every snapshot under its final name must be complete. Ends with code 1 if anything differs, and names the run to repeat.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from commands import aligned, parser_of
from resume import outcome, sets, victims

HANG_SECONDS = 300

MNIST = ["--model", "mnist-small", "--data", "mnist:{sets}/mnist", "--epochs", "2", "--batch-size", "8",
         "--log-interval", "3", "--snapshot-interval", "4steps", "--no-rescue"]
# Few processors have instructions for convolutions in bfloat16.
TOY = ["--model", "toy", "--data", "mock", "--epochs", "3", "--limit-train-batches", "10", "--batch-size", "16",
       "--log-interval", "3", "--snapshot-interval", "4steps", "--no-rescue"]
TWO = ["--nproc-per-node", "2"]
BY_SCRIPT = ["--max-restarts", "0"]
RESNET = ["--model", "resnet18-cifar", "--data", "cifar10:{sets}/cifar10", "--epochs", "2", "--batch-size", "4", "--opt", "sgd",
          "--log-interval", "3", "--snapshot-interval", "5steps", "--no-rescue", "--augment", "crop-flip", "--workers", "2"]
# These flags are not the defaults, so that the optimizers' and schedules' states differ.
CONFIGURATIONS = {
    "serial": MNIST + ["--sched", "cosine", "--warmup-epochs", "1", "--sched-on-updates"],
    "dp": MNIST + ["--parallel", "dp", "--places", "2", "--opt", "sgd", "--momentum", "0.9"],
    "ddp": MNIST + TWO + BY_SCRIPT + ["--parallel", "ddp", "--sched", "onecycle"],
    "pp": MNIST + TWO + BY_SCRIPT + ["--parallel", "pp", "--chunks", "4", "--balance", "count"],
    "bf16": TOY + TWO + BY_SCRIPT + ["--parallel", "ddp", "--precision", "bf16-mixed"],
    "augment": MNIST + TWO + BY_SCRIPT + ["--parallel", "ddp", "--augment", "crop-flip", "--workers", "2"],
    "sharded": MNIST + TWO + BY_SCRIPT + ["--parallel", "ddp", "--shard-optimizer", "--opt", "adamw", "--model-ema",
                                          "--val-split", "0.2", "--sched", "plateau", "--patience-epochs", "0"],
    "accumulate": MNIST + TWO + BY_SCRIPT + ["--parallel", "ddp", "--grad-accum-steps", "3", "--clip-grad", "1"],
    "fsdp": MNIST + TWO + BY_SCRIPT + ["--parallel", "fsdp", "--opt", "adamw", "--model-ema", "--clip-grad", "1", "--grad-accum-steps", "2"],
    "batch-norm": RESNET + TWO + BY_SCRIPT + ["--parallel", "ddp"],
    "launcher": MNIST + TWO + ["--max-restarts", "3", "--parallel", "ddp"],
}


def parse_arguments():
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=200, help="runs to kill, over all configurations [200]")
    parser.add_argument("--most-kills", type=int, default=1, help="kills of one run, drawn from 1 to this [1]")
    parser.add_argument("--only", help="configurations, separated by commas, of: " + ", ".join(CONFIGURATIONS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--run", type=int, help="only the run of this number")
    parser.add_argument("--output", help="a folder in which to keep records.jsonl and the runs that differ")
    return parser.parse_args()


@dataclass
class Configuration:
    name: str
    flags: list
    expected: dict = field(default_factory=dict)
    duration: float = 0.0
    saves: int = 1
    log: str = ""

    @property
    def ranks(self):
        return 2 if "--nproc-per-node" in self.flags else 1

    @property
    def launcher_restarts(self):
        return self.name == "launcher"

    def victims(self):
        ranks = [str(rank) for rank in range(self.ranks)]
        if self.launcher_restarts:
            return ranks
        return ranks * 2 + ["launcher", "all"] if self.ranks > 1 else ["all"]


@dataclass
class Killed:
    """The result of one run that was killed."""

    number: int
    moments: list = field(default_factory=list)
    kills: int = 0
    fresh_starts: int = 0
    complaints: list = field(default_factory=list)


class Soak:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        sets.write_idx(folder / "sets/mnist", 210, 50)
        sets.synthesize_cifar(arguments.lockstep, folder / "sets/cifar10", 80, 20)

    def start(self, configuration, run, more=()):
        words = [word.replace("{sets}", str(self.folder / "sets")) for word in configuration.flags]
        command = [self.arguments.lockstep, "train", *words, "--output", str(run), "--resume", "auto", "--progress", "none", *more]
        errors = open(run.with_suffix(".err"), "ab")
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, env=environment)

    def undisturbed(self, configuration, name, more=()):
        run = self.folder / f"{configuration.name}-{name}"
        begin = time.monotonic()
        code = self.wait(self.start(configuration, run, more), run)
        if code != 0:
            sys.exit(f"{configuration.name}: the uninterrupted run ended with {code}:\n{run.with_suffix('.err').read_text()[-3000:]}")
        return outcome.outcome(run), time.monotonic() - begin

    def prepare(self, configuration):
        """Runs it uninterrupted, with snapshots and without: saving must not change the result either."""
        configuration.expected, configuration.duration = self.undisturbed(configuration, "reference")
        interval = int(configuration.flags[configuration.flags.index("--snapshot-interval") + 1].removesuffix("steps"))
        configuration.saves = max(1, configuration.expected["summary steps"] // interval)
        unsaved, _ = self.undisturbed(configuration, "unsaved", ["--snapshot-interval", "none"])
        return outcome.differences(configuration.expected, unsaved)

    def killed_run(self, configuration, number):
        source = random.Random(f"{self.arguments.seed}/{configuration.name}/{number}")
        result, run = Killed(number), self.folder / f"{configuration.name}-{number}"
        kills = source.randint(1, self.arguments.most_kills)
        for attempt in range(kills + 8):
            last = attempt >= kills
            moment = None if last else victims.draw_moment(
                source, configuration.victims(), configuration.duration, configuration.saves)
            if self.attempt(configuration, run, moment, result):
                break
        else:
            result.complaints.append(f"did not end in {kills + 8} attempts")
        if not result.complaints:
            result.complaints += outcome.differences(configuration.expected, outcome.outcome(run))
            result.complaints += outcome.leftovers(run)
        result.fresh_starts = run.with_suffix(".err").read_text(errors="replace").count("no complete snapshot in") - 1
        return result, run

    def wait(self, process, run):
        """Returns the exit code, or None when it hung. Leaves no process of the run, whatever ends this."""
        try:
            return process.wait(HANG_SECONDS)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                victims.kill(victims.processes_of(run))
                process.wait()

    def attempt(self, configuration, run, moment, result):
        """Makes one attempt of a run; returns whether it was the last."""
        begin = time.monotonic()
        process = self.start(configuration, run)
        if moment and victims.wait_for(moment, run, process, begin):
            if struck := victims.strike(moment.victim, run):
                result.kills += 1
                result.moments.append(f"{moment}{'' if struck == 1 else f' ({struck} processes)'}")
        code = self.wait(process, run)
        if code is None:
            result.complaints.append(f"did not end within {HANG_SECONDS} s")
            return True
        if left := victims.wait_until_gone(run):
            result.complaints.append(f"processes left: {sorted(left)}")
            victims.kill(left)
        result.complaints += outcome.broken_snapshots(run)
        if code != 0 and moment is None:
            tail = run.with_suffix(".err").read_text(errors="replace")[-1500:]
            result.complaints.append(f"ended with code {code}:\n{tail}")
        return code == 0 or bool(result.complaints)


def remove(run):
    subprocess.run(["rm", "-rf", str(run), str(run.with_suffix(".err"))], check=True)


def report(configuration, result, arguments):
    print(f"\n{configuration.name} run {result.number}: killed {'; '.join(result.moments) or 'not at all'}")
    for complaint in result.complaints[:12]:
        print(f"  {complaint}")
    if len(result.complaints) > 12:
        print(f"  and {len(result.complaints) - 12} more")
    print(f"  again: benchmarks/soak.py --only {configuration.name} --seed {arguments.seed} --run {result.number}"
          f" --most-kills {arguments.most_kills}", flush=True)


def soak_one(soak, configuration, runs, arguments):
    """Returns the results of one configuration."""
    if changed := soak.prepare(configuration):
        print(f"{configuration.name}: the run without snapshots differs from that with them:")
        print("\n".join(f"  {line}" for line in changed[:12]))
    results, number = [], 0
    numbers = [arguments.run] if arguments.run is not None else None
    while len([result for result in results if result.kills or result.complaints]) < runs and number < 5 * runs:
        chosen = numbers[0] if numbers else number
        number += 1
        result, run = soak.killed_run(configuration, chosen)
        results.append(result)
        if result.complaints:
            report(configuration, result, arguments)
        if not (result.complaints and arguments.output):
            remove(run)
        if numbers:
            break
    return results, changed


def table(rows):
    heads = ["configuration", "runs killed", "kills", "while saving", "fresh starts", "equal", "seconds"]
    return aligned([heads] + [[str(cell) for cell in row] for row in rows])


def row_of(name, results, seconds):
    killed = [result for result in results if result.kills or result.complaints]
    equal = len([result for result in killed if not result.complaints])
    saving = sum(" of save " in moment for result in killed for moment in result.moments)
    return [name, len(killed), sum(result.kills for result in killed), saving,
            sum(result.fresh_starts for result in killed), f"{equal} of {len(killed)}", f"{seconds:.0f}"]


def soak_all(arguments, folder):
    soak, rows, failures, records = Soak(arguments, folder), [], 0, []
    names = arguments.only.split(",") if arguments.only else list(CONFIGURATIONS)
    for position, name in enumerate(names):
        runs = arguments.runs * (position + 1) // len(names) - arguments.runs * position // len(names)
        begin = time.monotonic()
        results, changed = soak_one(soak, Configuration(name, CONFIGURATIONS[name]), runs, arguments)
        rows.append(row_of(name, results, time.monotonic() - begin))
        print(table(rows[-1:]) if len(rows) == 1 else table(rows[-1:]).split("\n")[1], flush=True)
        failures += len([result for result in results if result.complaints]) + bool(changed)
        records += [{"configuration": name, "seed": arguments.seed, **vars(result)} for result in results]
    print("\n" + table(rows))
    killed, equal = sum(row[1] for row in rows), sum(int(row[5].split()[0]) for row in rows)
    print(f"{equal} of {killed} killed runs ended like the uninterrupted one (seed {arguments.seed})")
    if arguments.output:
        (folder / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return failures


def main():
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the finally blocks end what was started
    unknown = [name for name in (arguments.only or "").split(",") if name and name not in CONFIGURATIONS]
    if unknown:
        sys.exit(f"soak: there is no configuration {', '.join(unknown)}; there are {', '.join(CONFIGURATIONS)}")
    if arguments.output:
        Path(arguments.output).mkdir(parents=True, exist_ok=True)
        return 1 if soak_all(arguments, Path(arguments.output).resolve()) else 0
    with tempfile.TemporaryDirectory(prefix="lockstep-soak-") as folder:
        return 1 if soak_all(arguments, Path(folder).resolve()) else 0


if __name__ == "__main__":
    sys.exit(main())
