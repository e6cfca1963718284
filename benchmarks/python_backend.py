#!/usr/bin/env python3
"""Compares the backend "lockstep" of Python's torch.distributed with Gloo: collectives of CPU tensors between processes of one host.

    PYTHONPATH=build/release/python benchmarks/python_backend.py [--ranks 2] [--bytes 65536 1048576 ...] [--json FILE]

Both groups are in the same processes and take turns. A sample is the mean of some calls that follow one another; each round has a sample
of Gloo, of lockstep with ordinary tensors, and of lockstep with tensors of allocate_tensor(), which all ranks see in place. Printed are
medians over the rounds of the time of a call, of the ratio of Gloo's to ours with its quartiles, and of the same ratio of the ranks' CPU
time, which other programs on the machine change less.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import lockstep.distributed  # noqa: F401

CPU = torch.device("cpu")
COLLECTIVES = ["all_reduce", "reduce_scatter", "all_gather"]


def call_of(name, group, elements, make):
    """Returns a call of a collective, of which one rank's larger tensor has that many elements."""
    size = dist.get_world_size(group)
    whole = make(elements).fill_(1)
    part = make(elements // size).fill_(1)
    return {
        "all_reduce": lambda: dist.all_reduce(whole, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole, group=group),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part, group=group),
    }[name]


def sample(call, repeats):
    """Returns the seconds of a call, the slowest rank's, and its CPU seconds, of all ranks and threads."""
    dist.barrier()
    started, used = time.perf_counter(), time.process_time()
    for _ in range(repeats):
        call()
    spent = torch.tensor([time.perf_counter() - started, time.process_time() - used], dtype=torch.float64) / repeats
    dist.all_reduce(spent[:1], dist.ReduceOp.MAX)
    dist.all_reduce(spent[1:])
    return spent.tolist()


def calls(name, gloo, ours, elements):
    backend = ours._get_backend(CPU)
    plain = lambda count: torch.empty(count)  # noqa: E731
    shared = lambda count: backend.allocate_tensor(count, dtype=torch.float32, device=CPU)  # noqa: E731
    return {
        "gloo": call_of(name, gloo, elements, plain),
        "lockstep": call_of(name, ours, elements, plain),
        "in place": call_of(name, ours, elements, shared),
    }


def measure(name, groups, size_in_bytes, arguments):
    """Returns the samples of each way, round by round."""
    sides = calls(name, *groups, size_in_bytes // 4 // arguments.ranks * arguments.ranks)
    once = sample(sides["gloo"], 2)[0]
    repeats = max(1, min(200, int(arguments.seconds / arguments.rounds / once)))
    for call in sides.values():
        sample(call, 2)  # pages, connections
    rounds = [{side: sample(call, repeats) for side, call in sides.items()} for _ in range(arguments.rounds)]
    return {side: [each[side] for each in rounds] for side in sides}


def row_of(name, size_in_bytes, samples):
    gloo = samples["gloo"]
    row = {"collective": name, "bytes": size_in_bytes, "gloo_ms": 1e3 * statistics.median(seconds for seconds, _ in gloo)}
    for side in ("lockstep", "in place"):
        pairs = list(zip(gloo, samples[side]))
        low, middle, high = statistics.quantiles([theirs[0] / ours[0] for theirs, ours in pairs], n=4)
        row[side] = {
            "ms": 1e3 * statistics.median(seconds for seconds, _ in samples[side]),
            "ratio": middle,
            "quartiles": [low, high],
            "cpu_ratio": statistics.median(theirs[1] / ours[1] for theirs, ours in pairs),
        }
    return row


def run_rank(rank, arguments, file):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=arguments.ranks)
    groups = (dist.group.WORLD, dist.new_group(list(range(arguments.ranks)), backend="lockstep"))
    rows = []
    for name in arguments.collectives:
        for size_in_bytes in arguments.bytes:
            row = row_of(name, size_in_bytes, measure(name, groups, size_in_bytes, arguments))
            rows.append(row)
            if rank == 0:
                sides = "".join(
                    "  {ms:9.3f} {ratio:6.1f}x [{quartiles[0]:.1f}, {quartiles[1]:.1f}] {cpu_ratio:6.1f}x".format(**row[side])
                    for side in ("lockstep", "in place")
                )
                print(f"{name:15}{size_in_bytes:10}  {row['gloo_ms']:9.3f}{sides}", flush=True)
    if rank == 0 and arguments.json:
        with open(arguments.json, "w") as out:
            json.dump({"torch": torch.__version__, "ranks": arguments.ranks, "cores": os.cpu_count(), "rows": rows}, out, indent=1)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--bytes", type=int, nargs="+", default=[1 << 16, 1 << 20, 1 << 22, 25 << 20, 100 << 20])
    parser.add_argument("--collectives", nargs="+", default=COLLECTIVES, choices=COLLECTIVES)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=2.0, help="about how long Gloo's samples of a row take in all")
    parser.add_argument("--json", help="a file for the figures")
    arguments = parser.parse_args()
    print(f"{'collective':15}{'bytes':>10}  {'gloo ms':>9}  {'lockstep':>9} {'ratio':>7} [quartiles] {'CPU':>6}  {'in place':>9} {'ratio':>7} [quartiles] {'CPU':>6}")
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run_rank, (arguments, f"{folder}/world"), nprocs=arguments.ranks)


if __name__ == "__main__":
    sys.exit(main())
