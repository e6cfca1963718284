#!/usr/bin/env python3
"""Times two builds of Lockstep in turn where ranks exchange gradients, and prints the ratios of medians.

    benchmarks/two_builds.py --before /tmp/before/build/release/bin/lockstep
    benchmarks/two_builds.py --before OLD/lockstep --after NEW/lockstep --rounds 3 --rows gloo-64K crowd-resnet18

A row is an exchange by Gloo between two pinned ranks (`gloo-`), a training of four ranks on two cores (`crowd-`), or one of two ranks on
each of two hosts within this machine (`hosts-`, needs root). For a change of the library whose gain a page names: give the commit before it.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from commands import ROOT, SharedTime, output_of, seconds_of_step, setting, steps_alone, with_range

LINES = 5  # of metrics


def by_gloo(lockstep, size):
    """Returns the seconds of an all_reduce."""
    with tempfile.TemporaryDirectory() as folder:
        sweep = ["collectives", "--backend", "gloo", "--op", "all_reduce", "--min-bytes", size, "--max-bytes", size, "--iterations", "300"]
        output_of([lockstep, "run", "--nproc-per-node", "2", "--", lockstep, *sweep, "--output", f"{folder}/sweep"])
        return json.loads(Path(f"{folder}/sweep/collectives.jsonl").read_text().strip().split("\n")[-1])["seconds"]


def training(model, batch, steps, *more):
    size = "28" if model.startswith("mnist") else "32"
    flags = ["train", "--model", model, "--parallel", "ddp", "--batch-size", str(batch), "--image-size", size]
    return [*flags, *steps_alone(steps, LINES), *more]


def step_of(command):
    """Returns the seconds of a step of a training, of which `command` lacks the folder."""
    with tempfile.TemporaryDirectory() as folder:
        output_of(["taskset", "-c", "0,1", "env", "OMP_NUM_THREADS=1", *command, "--output", f"{folder}/run"])
        return seconds_of_step(f"{folder}/run")


def on_hosts(lockstep, words):
    run = [lockstep, "run", "--nproc-per-node", "2", "--"]
    return step_of([lockstep, "hosts", "--count", "2", "--rate", "10gbit", "--", *run, lockstep, *words])


SMALL, LARGE = ("mnist-small", 64, 900), ("resnet18", 32, 60)
CROWDED = ("--nproc-per-node", "4")
GLOO = ("--nproc-per-node", "2", "--backend", "gloo")
ROWS = {
    "gloo-64K": lambda lockstep: by_gloo(lockstep, "64K"),
    "gloo-1M": lambda lockstep: by_gloo(lockstep, "1M"),
    "gloo-mnist-small": lambda lockstep: step_of([lockstep, *training(*SMALL, *GLOO)]),
    "gloo-resnet18": lambda lockstep: step_of([lockstep, *training(*LARGE, *GLOO)]),
    "crowd-mnist-small": lambda lockstep: step_of([lockstep, *training(*SMALL, *CROWDED)]),
    "crowd-resnet18": lambda lockstep: step_of([lockstep, *training(*LARGE, *CROWDED)]),
    "hosts-mnist-small": lambda lockstep: on_hosts(lockstep, training(*SMALL)),
    "hosts-resnet18": lambda lockstep: on_hosts(lockstep, training(*LARGE)),
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True, help="the lockstep of another build")
    parser.add_argument("--after", default=str(ROOT / "build/release/bin/lockstep"))
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def milliseconds(seconds):
    return with_range([1e3 * value for value in seconds], ".3g")


def main():
    arguments = parse_arguments()
    print(setting(f"{arguments.rounds} rounds") + "\n")
    print("| | before, ms | since, ms | before / since | other programs |\n|---|---|---|---|---|", flush=True)
    for name in arguments.rows:
        busy, before, since = SharedTime(), [], []
        for _ in range(arguments.rounds):
            before.append(ROWS[name](arguments.before))
            since.append(ROWS[name](arguments.after))
        ratio = statistics.median(before) / statistics.median(since)
        print(f"| {name} | {milliseconds(before)} | {milliseconds(since)} | **{ratio:.2f}** | {busy.of_others():.0%} |", flush=True)


if __name__ == "__main__":
    main()
