#!/usr/bin/env python3
"""Times two ranks of Lockstep against one, each rank on a core of its own, in turn, and prints the ratios of medians.

    benchmarks/two_ranks.py
    benchmarks/two_ranks.py --rounds 7 --rows resnet18

All have the same batch a rank, so two ranks do twice the work of a step. Between them two runs of one rank train at once, which share
nothing but the machine: what cores lose to each other (clock rate, caches, memory) shows there, and is the bound of two ranks whose optimizers
each update all parameters. With --shard-optimizer each updates half of them. Times are those of steps: an epoch's begin and end do not count.
"""

import statistics
import tempfile
from concurrent.futures import ThreadPoolExecutor

from commands import SharedTime, bold_ratio, output_of, parser_of, seconds_of_step, setting, steps_alone

# Flags, and steps.
ROWS = {
    "mnist-small": ("--model mnist-small --image-size 28", 1200),
    "resnet18": ("--model resnet18 --image-size 32", 48),
}
BATCH = 128


def parse_arguments():
    parser = parser_of(__doc__)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--precision", choices=["32", "bf16-mixed"], default="32")
    return parser.parse_args()


def images_per_second(arguments, flags, steps, cores, *more):
    """Trains with a rank on each of these cores; returns the images of all a second."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["taskset", "-c", ",".join(map(str, cores)), arguments.lockstep, "train", *flags.split(), *more]
        command += ["--batch-size", str(BATCH), "--nproc-per-node", str(len(cores)), "--precision", arguments.precision]
        output_of([*command, *steps_alone(steps, 6), "--output", f"{folder}/run"])
        return BATCH * len(cores) / seconds_of_step(f"{folder}/run")


def two_at_once(*work):
    """Trains on each core by itself, at the same time; returns the sum of the rates."""
    with ThreadPoolExecutor(2) as pool:
        return sum(pool.map(lambda core: images_per_second(*work, [core]), (0, 1)))


RUNS = {  # each takes the arguments, a row's flags and its steps
    "one rank": lambda *work: images_per_second(*work, [0]),
    "two alone": two_at_once,
    "two ranks": lambda *work: images_per_second(*work, [0, 1]),
    "sharded": lambda *work: images_per_second(*work, [0, 1], "--shard-optimizer"),
}


def main():
    arguments = parse_arguments()
    print(setting(arguments.precision, f"{arguments.rounds} rounds") + "\n")
    print("| work | one rank, images/s | two alone / one | two ranks, images/s | **two ranks / one** | two ranks / two alone "
          "| **sharded / one** | other programs |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name in arguments.rows:
        busy, rates = SharedTime(), {run: [] for run in RUNS}
        for _ in range(arguments.rounds):
            for run, rate in RUNS.items():
                rates[run].append(rate(arguments, *ROWS[name]))
        one, alone, two, sharded = rates.values()
        print(f"| {name} | {statistics.median(one):,.4g} | {bold_ratio(alone, one)} | {statistics.median(two):,.4g} | {bold_ratio(two, one)} "
              f"| {bold_ratio(two, alone)} | {bold_ratio(sharded, one)} | {busy.of_others():.0%} |", flush=True)


if __name__ == "__main__":
    main()
