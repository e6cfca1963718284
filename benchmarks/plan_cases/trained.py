"""Trains the cases of plan_accuracy.py: what a file holds is not trained again."""

import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from commands import SharedTime, cpu_model, output_of, seconds_of_step, steps_alone

from .drawn import MODELS, key_of, replicas_of

LINES = 3  # of metrics
STEPS = 8  # a line, if that takes about as long as this:
LEAST_SECONDS, MOST_SECONDS = 1, 10  # short steps need time to warm up, those over a slow link would take hours
TRIES, MOST_OF_OTHERS = 3, 0.1  # of a training that other programs disturb


def training(lockstep, case, run):
    line = max(1, min(max(STEPS, int(LEAST_SECONDS / case["predicted"])), int(MOST_SECONDS / case["predicted"])))
    command = [lockstep, "train", "--model", case["model"], *MODELS[case["model"]][2], *steps_alone(LINES * line, LINES)]
    command += ["--batch-size", str(case["batch"] // replicas_of(case)), "--parallel", case["way"], "--output", run]
    if case["way"] in ("dp", "mp", "pp"):
        command += ["--places", str(case["places"])]
    if case["way"] in ("mp", "pp"):
        command += ["--balance", "time"]
    if "chunks" in case:
        command += ["--schedule", case["schedule"], "--chunks", str(case["chunks"])]
    if "link" in case:
        hosts = [lockstep, "hosts", "--count", "2", "--rate", case["link"], "--"]
        return [*hosts, lockstep, "run", "--nproc-per-node", str(case["places"]), "--", *command]
    return [*command, "--nproc-per-node", str(case["places"])] if case["way"] == "ddp" else command


def train(lockstep, case):
    """Returns the seconds of a step, the memory of a process, and the share of the machine that other programs used."""
    cores = os.cpu_count() if "link" in case else min(case["places"], os.cpu_count())
    with tempfile.TemporaryDirectory() as folder:
        shared = SharedTime()
        pinned = ["taskset", "-c", ",".join(str(core) for core in range(cores)), "env", "OMP_NUM_THREADS=1"]
        try:
            output_of(pinned + training(lockstep, case, f"{folder}/run"))
        except SystemExit as error:
            sys.exit(f"{case}\n{error}")
        others = shared.of_others()
        seconds = seconds_of_step(f"{folder}/run")
        peak = json.loads(Path(f"{folder}/run/summary.json").read_text()).get("peak_memory_bytes")
    result = {"measured": seconds, "others": others}
    if case["way"] in ("serial", "ddp") and peak:
        result["measured_bytes"] = peak / replicas_of(case)
    return result


def undisturbed(lockstep, case):
    """Returns the least disturbed of a few trainings, if the first one was disturbed."""
    tried = []
    while len(tried) < TRIES and (not tried or tried[-1]["others"] > MOST_OF_OTHERS):
        tried.append(train(lockstep, case))
    return min(tried, key=lambda result: result["others"])


class Trainings:
    """What was measured of cases, in a file of JSON lines of which the first names the machine."""

    def __init__(self, lockstep, file):
        self.lockstep, self.file = lockstep, Path(file) if file else None
        self.done = {}
        machine = {"cpu": cpu_model(), "cores": os.cpu_count()}
        if self.file and self.file.exists():
            first, *lines = [json.loads(line) for line in self.file.read_text().splitlines()]
            if first != machine:
                sys.exit(f"{file} was measured on {first}, and this is {machine}; name another file")
            for line in lines:
                self.done.setdefault(line["case"], []).append(line["result"])
        elif self.file:
            self.append(machine)

    def append(self, line):
        with self.file.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def number_of(self, case):
        return len(self.done.get(key_of(case), []))

    def train(self, case):
        result = undisturbed(self.lockstep, case)
        self.done.setdefault(key_of(case), []).append(result)
        if self.file:
            self.append({"case": key_of(case), "result": result})
        return result

    def of(self, case):
        """The medians of what a case's trainings measured; of its steps the first training's and the median of the later ones, too."""
        results = self.done[key_of(case)]
        median = {name: statistics.median(result[name] for result in results) for name in results[0]}
        steps = [result["measured"] for result in results]
        later = statistics.median(steps[1:]) if len(steps) > 1 else None
        return median | {"drift": max(steps) / min(steps) - 1, "trainings": len(steps), "first": steps[0], "later": later}
