#!/usr/bin/env python3
"""Shows what the threads of a rank that trains ResNet18 take of a core in a step: those that compute, and those of Gloo.

    benchmarks/thread_time.py

Two ranks exchange gradients by Gloo over the loopback; then one and two ranks on each of two hosts within this machine, at 10 Gbit/s (needs
root). Times are those of the kernel's scheduler, over some seconds of the run.
"""

import os
import subprocess
import tempfile
import time
from pathlib import Path

from commands import SharedTime, parser_of, processes_where, seconds_of_step, setting, steps_alone, variables_of

STEPS, LINES = 150, 5
GLOO = ("gloo_tcp_loop", "pt_gloo_runloop")
ROWS = {
    "two ranks, loopback": (["--nproc-per-node", "2", "--backend", "gloo"], 0),
    "two hosts of one rank": ([], 1),
    "two hosts of two ranks": ([], 2),
}


def command_of(lockstep, row, folder):
    more, ranks_a_host = ROWS[row]
    train = [lockstep, "train", "--model", "resnet18", "--image-size", "32", "--batch-size", "32", "--parallel", "ddp", *steps_alone(STEPS, LINES)]
    train += [*more, "--output", folder]
    if ranks_a_host == 0:
        return train
    return [lockstep, "hosts", "--count", "2", "--rate", "10gbit", "--", lockstep, "run", "--nproc-per-node", str(ranks_a_host), "--", *train]


def ranks_with(mark):
    """Returns the processes that compute, of those that have this in their environment."""
    computing = processes_where(lambda process: (process / "comm").read_text().strip() == "lockstep-train"
                                and mark.encode() in variables_of(process) and len(list((process / "task").iterdir())) > 2)
    return [Path(f"/proc/{process}") for process in computing]


def seconds_by_use(rank):
    """Returns the seconds of a core that a process has used, by what its threads do."""
    uses = {"compute": 0.0, "Gloo": 0.0, "others": 0.0}
    for thread in (rank / "task").iterdir():
        use = "Gloo" if (thread / "comm").read_text().strip() in GLOO else "compute" if thread.name == rank.name else "others"
        uses[use] += int((thread / "schedstat").read_text().split()[0]) / 1e9
    return uses


def used_meanwhile(ranks, seconds):
    """Returns the seconds of a core of a rank, on average, in a second."""
    before, start = [seconds_by_use(rank) for rank in ranks], time.monotonic()
    time.sleep(seconds)
    after, passed = [seconds_by_use(rank) for rank in ranks], time.monotonic() - start
    return {use: sum(b[use] - a[use] for a, b in zip(before, after)) / len(ranks) / passed for use in before[0]}


def measure(lockstep, row, seconds):
    """Returns the seconds of a step, and of a core in it for each use."""
    mark = f"LOCKSTEP_BENCHMARK={os.getpid()}"
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "LOCKSTEP_BENCHMARK": str(os.getpid())}
        run = subprocess.Popen(command_of(lockstep, row, f"{folder}/run"), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        metrics = Path(f"{folder}/run/metrics.jsonl")
        while run.poll() is None and not (metrics.exists() and metrics.read_text().count("\n")):
            time.sleep(0.1)
        uses = used_meanwhile(ranks_with(mark), seconds)
        if run.wait() != 0:
            raise SystemExit(f"{row}: lockstep ended with {run.returncode}")
        step = seconds_of_step(f"{folder}/run")
    return step, {use: share * step for use, share in uses.items()}


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--seconds", type=float, default=6, help="to look at each run")
    arguments = parser.parse_args()
    print(f"{setting()}; ms of a step, and of a core that a rank takes in it\n")
    print("| | step | computes | Gloo | other threads | other programs |\n|---|---|---|---|---|---|", flush=True)
    for row in ROWS:
        busy = SharedTime()
        step, uses = measure(arguments.lockstep, row, arguments.seconds)
        print(f"| {row} | {1e3 * step:.0f} | " + " | ".join(f"{1e3 * seconds:.0f}" for seconds in uses.values()) + f" | {busy.of_others():.0%} |", flush=True)


if __name__ == "__main__":
    main()
