#!/usr/bin/env python3
"""Trains and evaluates in each way on an idle machine, beside as many busy programs as cores, and within half of the cores, in turn.

    benchmarks/under_load.py
    benchmarks/under_load.py --rounds 1 --batches 20 --ways serial ddp-shm

A table has the rates where nothing else runs, and what share of them is left, of each round's pair: medians, with their ranges. Beside as
many busy programs half is a fair share. Half of the cores are a quota of a cgroup where this user may make one, else those that taskset
names; the second table's title says which. Exits with 1 if a median is below --least.
"""

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from commands import SharedTime, last_json, output_of, parser_of, setting, with_range

WAYS = {
    "serial": "--parallel serial",
    "dp": "--parallel dp --places 2",
    "ddp-threads": "--parallel ddp --places 2",
    "ddp-shm": "--parallel ddp --nproc-per-node 2 --backend shm",
    "ddp-gloo": "--parallel ddp --nproc-per-node 2 --backend gloo",
    "mp-threads": "--parallel mp --places 2",
    "mp-shm": "--parallel mp --nproc-per-node 2 --backend shm",
    "pp-threads": "--parallel pp --places 2",
    "pp-shm": "--parallel pp --nproc-per-node 2 --backend shm",
    "pp-gloo": "--parallel pp --nproc-per-node 2 --backend gloo",
}
QUIET = "--snapshot-interval never --progress none --json".split()
# By version: the folder, the file of the quota, and what to write for so many cores.
CGROUPS = {
    "v2": (Path("/sys/fs/cgroup"), "cpu.max", "{}00000 100000"),
    "v1": (Path("/sys/fs/cgroup/cpu"), "cpu.cfs_quota_us", "{}00000"),
}


def parse_arguments():
    parser = parser_of(__doc__)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--data", default="fashion-mnist")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=60, help="of an epoch; the second of two counts")
    parser.add_argument("--busy", type=int, default=os.cpu_count(), help="programs beside")
    parser.add_argument("--least", type=float, default=0.4, help="share of the idle rate that is to be left")
    return parser.parse_args()


def rates_of(arguments, way, before=()):
    """Trains two epochs; returns the images a second of the second one's training and of its evaluation."""
    command = [*before, arguments.lockstep, "train", "--model", "mnist-small", "--data", arguments.data, "--batch-size", "64"]
    command += ["--epochs", "2", "--limit-train-batches", str(arguments.batches), *WAYS[way].split(), *QUIET]
    with tempfile.TemporaryDirectory() as folder:
        last = last_json(output_of([*command, "--output", f"{folder}/run"]))["epochs"][-1]
    return last["samples"] / last["train_seconds"], last["val_samples"] / last["val_seconds"]


@contextlib.contextmanager
def busy_programs(count):
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


@contextlib.contextmanager
def half_of_the_cores():
    """Gives what they are, and the words before a command that keep it in them."""
    half = max(1, os.cpu_count() // 2)
    for version, (folder, file, quota) in CGROUPS.items():
        own = folder / f"lockstep-benchmark-{os.getpid()}"
        if not (folder / "cgroup.procs").exists() or not os.access(folder, os.W_OK):
            continue
        own.mkdir()
        try:
            if not (own / file).exists():
                continue
            (own / file).write_text(quota.format(half))
            yield f"a quota of cgroup {version}", ["sh", "-c", f'echo $$ > {own}/cgroup.procs; exec "$@"', "sh"]
            return
        finally:
            own.rmdir()
    yield "those that taskset names", ["taskset", "-c", f"0-{half - 1}"]


def share_text(shares, least):
    text = with_range(shares, ".0%")
    return text if statistics.median(shares) >= least else f"**{text}**"


def measure(arguments, way, half):
    """Returns the rates of each round: idle, beside busy programs, within half of the cores."""
    rounds = []
    for _ in range(arguments.rounds):
        idle = rates_of(arguments, way)
        with busy_programs(arguments.busy):
            loaded = rates_of(arguments, way)
        rounds.append((idle, loaded, rates_of(arguments, way, half)))
    return rounds


def main():
    arguments = parse_arguments()
    with half_of_the_cores() as (what, half):
        print(f"{setting(f'{arguments.rounds} rounds')}; half of the cores: {what}\n")
        print(f"| way | work | idle, images/s | beside {arguments.busy} busy programs | within half of the cores | other programs |")
        print("|---|---|---|---|---|---|", flush=True)
        is_enough = True
        for way in arguments.ways:
            shared = SharedTime()
            rounds = measure(arguments, way, half)
            for number, work in enumerate(("training", "evaluation")):
                idle, loaded, halved = ([rates[number] for rates in column] for column in zip(*rounds))
                shares = [[a / b for a, b in zip(rates, idle)] for rates in (loaded, halved)]
                is_enough &= min(map(statistics.median, shares)) >= arguments.least
                texts = [share_text(each, arguments.least) for each in shares]
                print(f"| {way} | {work} | {with_range(idle, ',.4g')} | {' | '.join(texts)} | {shared.of_others():.0%} |", flush=True)
    sys.exit(not is_enough)


if __name__ == "__main__":
    main()
