#!/usr/bin/env python3
"""Times how long training stops when a rank is killed: from the death to the next step of the restarted group.

    benchmarks/recovery.py                                        Lockstep only, without and with --spares
    benchmarks/recovery.py --peer-python VENV/bin/python          and torchrun, in turn
    benchmarks/recovery.py --peer-python VENV/bin/python --peer-flags=--shared-store

Each round starts mnist-small on Fashion-MNIST with two ranks that save every 50 steps, kills one of them by SIGKILL at a
random moment, waits for the first step of the next attempt, and ends the run. Both sides are observed from outside in the
same way: by the line that rank 0 writes after a step. What the peer does is in peers/mnist_restart.py.
"""

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

from commands import ROOT, parser_of

INTERVAL = 50
LONGEST_SECONDS = 120
TAIL_BYTES = 4096  # more than one line


def parse_arguments():
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--peer-python", help="a Python that can import torch")
    parser.add_argument("--peer-flags", default="", help="of peers/mnist_restart.py")
    return parser.parse_args()


def spares_side(arguments, folder):
    command, lines, ranks = lockstep_side(arguments, folder)
    return [*command, "--spares"], lines, ranks


def lockstep_side(arguments, folder):
    command = [arguments.lockstep, "train", "--model", "mnist-small", "--data", "fashion-mnist", "--nproc-per-node", "2"]
    command += ["--epochs", "1000", "--batch-size", "128", "--log-interval", "1", "--progress", "none"]
    command += ["--snapshot-interval", f"{INTERVAL}steps", "--max-restarts", "3", "--output", str(folder / "run")]
    return command, folder / "run/metrics.jsonl", "lockstep-train"


def peer_side(arguments, folder):
    command = [arguments.peer_python, str(ROOT / "benchmarks/peers/mnist_restart.py"), "--folder", str(folder)]
    command += ["--interval", str(INTERVAL), *arguments.peer_flags.split()]
    return command, folder / "steps.jsonl", "mnist_restart.py"


def last_record(path):
    """Returns what the newest complete line holds; None before there is one."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            text = file.read()
    except FileNotFoundError:
        return None
    lines = text[:text.rfind(b"\n") + 1].splitlines()
    return json.loads(lines[-1]) if lines else None


def last_line(path):
    """Returns restart and step of that line; (-1, 0) before there is one."""
    record = last_record(path)
    return (record["restart"], record["step"]) if record else (-1, 0)


def wait_for(process, path, condition, look=last_line, what="the run"):
    """Looks every millisecond; raises RuntimeError when the process has ended or it takes too long."""
    begin = time.monotonic()
    while not condition(look(path)):
        if process.poll() is not None or time.monotonic() - begin > LONGEST_SECONDS:
            raise RuntimeError(f"no such step; {what} ended with {process.poll()}")
        time.sleep(0.001)
    return time.monotonic()


def ranks_below(launcher, name):
    """Returns the processes of the ranks: those below the launcher with this name and a RANK."""
    ranks = {}
    for pid in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        command = Path(f"/proc/{pid}/cmdline").read_text()
        variables = Path(f"/proc/{pid}/environ").read_text().split("\0")
        found = [variable[5:] for variable in variables if variable.startswith("RANK=")]
        if name in command and found:
            ranks[int(found[0])] = int(pid)
    return ranks


def end(process):
    """Ends what the round started: its session, and no other process."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def seconds_to_next_step(side, arguments, source):
    with tempfile.TemporaryDirectory() as name:
        command, lines, ranks = side(arguments, Path(name))
        errors = Path(name) / "errors"
        with errors.open("wb") as stream:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stream,
                                       start_new_session=True)
        victims = {}
        try:
            wait_for(process, lines, lambda line: line[1] > INTERVAL)
            time.sleep(source.uniform(0, 1))
            victims = ranks_below(process.pid, ranks)
            begin = time.monotonic()
            os.kill(victims[source.randrange(2)], signal.SIGKILL)
            return wait_for(process, lines, lambda line: line[0] >= 1) - begin
        except (RuntimeError, KeyError) as error:
            print(f"{side.__name__}: {error}; ranks {victims}\n{errors.read_text(errors='replace')[-2000:]}", file=sys.stderr)
            return None
        finally:
            for pid in ranks_below(process.pid, ranks).values() if process.poll() is None else ():
                os.kill(pid, signal.SIGKILL)
            end(process)


def show(name, samples):
    good = sorted(sample for sample in samples if sample is not None)
    if not good:
        sys.exit(f"{name}: resumed after none of {len(samples)} kills")
    failed = f", {len(samples) - len(good)} did not resume" if len(good) < len(samples) else ""
    print(f"{name:11} median {statistics.median(good):.2f} s, {good[0]:.2f} to {good[-1]:.2f}, {len(samples)} kills{failed}")
    return statistics.median(good)


def medians_of(sides, rounds, what, measure):
    """Measures the sides in turn and shows each round; returns the median of each side."""
    samples = {name: [] for name in sides}
    for number in range(rounds):
        for name, side in sides.items():
            samples[name].append(measure(side))
        latest = ", ".join(f"{name} {list_[-1]:.2f} s" if list_[-1] else f"{name} failed" for name, list_ in samples.items())
        print(f"{what} {number + 1}: {latest}; load {os.getloadavg()[0]:.2f}", flush=True)
    return [show(name, list_) for name, list_ in samples.items()]


def main():
    arguments = parse_arguments()
    source = random.Random(arguments.seed)
    sides = {"lockstep": lockstep_side, "with spares": spares_side} | ({"torchrun": peer_side} if arguments.peer_python else {})
    medians = medians_of(sides, arguments.rounds, "round", lambda side: seconds_to_next_step(side, arguments, source))
    for name, median in list(zip(sides, medians))[1:]:
        print(f"{name} over lockstep: ratio of medians {median / medians[0]:.2f}")


if __name__ == "__main__":
    main()
