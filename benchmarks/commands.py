"""Runs the programs that a benchmark compares, and tells what else ran meanwhile."""

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def output_of(command):
    """Returns what a command prints; ends the benchmark with the last of its errors when it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr[-3000:]}")
    return done.stdout


def training_rate(command, samples):
    """Runs `lockstep train` of two epochs with this many samples each; returns the samples a second of the second one."""
    with tempfile.TemporaryDirectory() as folder:
        quiet = ["--val-interval", "never", "--snapshot-interval", "never", "--progress", "none", "--json"]
        printed = output_of([*command, "--data", "mock", "--epochs", "2", *quiet, "--output", f"{folder}/run"])
    last = json.loads(printed.strip().split("\n")[-1])["epochs"][-1]
    if last["samples"] != samples:
        sys.exit(f"not the same work: {last['samples']} samples an epoch, not {samples}")
    return samples / last["train_seconds"]


def steps_alone(steps, lines):
    """Returns the flags of a training that makes steps of constant data, and writes so many lines of metrics and nothing else."""
    flags = ["--data", "mock:constant", "--max-steps", str(steps), "--epochs", str(steps), "--log-interval", str(steps // lines)]
    return [*flags, "--val-interval", "never", "--snapshot-interval", "never", "--progress", "none"]


def seconds_of_step(run):
    """Returns the median of rank 0 over the lines of such a training's folder, without the first."""
    lines = [json.loads(line) for line in Path(f"{run}/metrics.jsonl").read_text().splitlines()]
    return statistics.median([line["step_ms"] / 1e3 for line in lines if line["split"] == "train" and line["rank"] == 0][1:])


def cpu_model():
    lines = Path("/proc/cpuinfo").read_text().split("\n")
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def busy_seconds():
    """Returns the CPU seconds that the whole machine has spent on anything but idling."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    return (sum(fields[:8]) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    """Returns the CPU seconds of this process and of the commands that it has run."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


class SharedTime:
    """The share of the machine that other programs have used since this was made."""

    def __init__(self):
        self.start, self.busy, self.own = time.monotonic(), busy_seconds(), own_seconds()

    def of_others(self):
        others = (busy_seconds() - self.busy) - (own_seconds() - self.own)
        return max(0.0, others) / ((time.monotonic() - self.start) * os.cpu_count())
