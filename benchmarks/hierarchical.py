#!/usr/bin/env python3
"""Times all_reduce of two ranks on each of two hosts: the hierarchical backend against Gloo between all ranks.

    benchmarks/hierarchical.py
    benchmarks/hierarchical.py --rates 1gbit --sizes 4,16 --rounds 5

The hosts are namespaces of this machine (`lockstep hosts`, which needs root), their links limited in both directions. In each round both
backends take turns; a value is the median over all repeats of all rounds, each repeat's time that of the slowest rank. Every result is
compared with the exact one first.

The bound: whatever the algorithm, a host must receive the other one's sums, so a message of n bytes takes n / rate seconds. Hierarchical
sends just that. A ring through all four ranks crosses each link with 2 * 3 / 4 of n, so Gloo cannot have more than 2/3 of the bound.
"""

import json
import os
import statistics
import tempfile
from pathlib import Path

from commands import SharedTime, cpu_model, output_of, parser_of, with_range

BACKENDS = ("hierarchical", "gloo")
BITS = {"1gbit": 1e9, "10gbit": 1e10}


def parse_arguments():
    parser = parser_of(__doc__)
    parser.add_argument("--rates", default="1gbit,10gbit,none", help="of each host's link, both ways")
    parser.add_argument("--sizes", default="1,4,16,100", help="of messages, in millions of bytes")
    parser.add_argument("--op", default="all_reduce", help="a collective of `lockstep collectives`")
    parser.add_argument("--rounds", type=int, default=3, help="in each of which every backend is measured")
    parser.add_argument("--iterations", type=int, default=5, help="repeats in a round")
    parser.add_argument("--memory", default="group", help="group, as DDP's buckets have, or ordinary")
    return parser.parse_args()


def seconds_of(arguments, rate, backend, size):
    """Returns the seconds of each repeat."""
    with tempfile.TemporaryDirectory() as folder:
        limit = [] if rate == "none" else ["--rate", rate]
        hosts = [arguments.lockstep, "hosts", "--count", "2", *limit, "--", arguments.lockstep, "run"]
        ranks = [*hosts, "--nproc-per-node", "2", "--no-pin", "--", arguments.lockstep, "collectives", "--op", arguments.op]
        message = ["--backend", backend, "--min-bytes", str(size), "--max-bytes", str(size), "--memory", arguments.memory]
        repeats = ["--warmup", "2", "--iterations", str(arguments.iterations), "--output", f"{folder}/sweep"]
        output_of([*ranks, *message, *repeats])
        return json.loads(Path(f"{folder}/sweep/collectives.jsonl").read_text())["repeat_seconds"]


def measure(arguments, rate, size):
    """Returns the repeats of each backend, a list for each round."""
    rounds = {backend: [] for backend in BACKENDS}
    for _ in range(arguments.rounds):
        for backend in BACKENDS:
            rounds[backend].append(seconds_of(arguments, rate, backend, size))
    return rounds


def median_of(rounds):
    return statistics.median(value for repeats in rounds for value in repeats)


def shown(rounds):
    values = [value * 1e3 for repeats in rounds for value in repeats]
    return with_range(values, ".3g").replace(" (", " ms (")


def row(arguments, rate, megabytes):
    size = int(float(megabytes) * 1e6)
    load = SharedTime()
    rounds = measure(arguments, rate, size)
    ours, flat = rounds["hierarchical"], rounds["gloo"]
    by_round = sorted(statistics.median(b) / statistics.median(a) for a, b in zip(ours, flat))
    ratio = f"**{median_of(flat) / median_of(ours):.2f}** ({by_round[0]:.2f} to {by_round[-1]:.2f})"
    bound = size * 8 / BITS[rate] if rate in BITS else None
    shares = [f"{bound / median_of(side):.2f}" if bound else "" for side in (ours, flat)]
    return [rate, megabytes, shown(ours), shares[0], shown(flat), shares[1], ratio, f"{load.of_others():.0%}"]


def main():
    arguments = parse_arguments()
    print(f"{cpu_model()}, {os.cpu_count()} cores, {arguments.op}, {arguments.memory} memory")
    head = ["link", "MB", "hierarchical", "share of the bound", "Gloo", "share", "Gloo's / hierarchical (by round)", "other programs"]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for rate in arguments.rates.split(","):
        for megabytes in arguments.sizes.split(","):
            print(f"| {' | '.join(row(arguments, rate, megabytes))} |", flush=True)


if __name__ == "__main__":
    main()
