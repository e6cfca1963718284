#!/usr/bin/env python3
"""Times two ranks against one of Lockstep, each rank on a core of its own, in turn, and prints the ratios of medians.

    benchmarks/two_ranks.py
    benchmarks/two_ranks.py --rounds 7 --rows resnet18

Both have the same batch a rank, so two ranks do twice the work of a step and 2 is the bound. The one rank has the first core, and
whatever the other core lets it have of the caches and the memory.
"""

import argparse
import os
import statistics
import time
from pathlib import Path

from commands import cpu_model, SharedTime, training_rate

ROOT = Path(__file__).resolve().parent.parent
# Flags, and batches an epoch.
ROWS = {
    "mnist-small": ("--model mnist-small --image-size 28 --batch-size 128", 468),
    "resnet18": ("--model resnet18 --image-size 32 --batch-size 128", 12),
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", default=str(ROOT / "build/release/bin/lockstep"))
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--precision", choices=["32", "bf16-mixed"], default="32")
    return parser.parse_args()


def images_per_second(arguments, flags, batches, ranks):
    """Trains two epochs on as many cores as ranks; returns the rate of the second one."""
    command = ["taskset", "-c", f"0-{ranks - 1}", arguments.lockstep, "train", *flags.split(), "--nproc-per-node", str(ranks)]
    command += ["--repeat", "500", "--limit-train-batches", str(batches), "--precision", arguments.precision]
    return training_rate(command, 128 * batches * ranks)


def main():
    arguments = parse_arguments()
    print(f"{cpu_model()}, {os.cpu_count()} cores, {arguments.precision}, {arguments.rounds} rounds, {time.strftime('%d %B %Y')}\n")
    print("| work | two ranks, images/s | one rank | ratio (by round) | other programs |\n|---|---|---|---|---|", flush=True)
    for name in arguments.rows:
        flags, batches = ROWS[name]
        busy, rates = SharedTime(), {1: [], 2: []}
        for _ in range(arguments.rounds):
            for ranks in (1, 2):
                rates[ranks].append(images_per_second(arguments, flags, batches, ranks))
        pairs = [two / one for one, two in zip(rates[1], rates[2])]
        one, two = statistics.median(rates[1]), statistics.median(rates[2])
        print(f"| {name} | {two:,.4g} | {one:,.4g} | **{two / one:.2f}** ({min(pairs):.2f} to {max(pairs):.2f}) | {busy.of_others():.0%} |",
              flush=True)


if __name__ == "__main__":
    main()
