#!/usr/bin/env python3
"""Measures how far the steps that `lockstep plan` predicts are from those that `lockstep train` makes.

    python3 benchmarks/plan_accuracy.py --cases 120 --output accuracy.json

Each model is measured once by `lockstep plan --measure`. Then cases are drawn by a seed: a model, a way, a number of places, a
batch that was not measured. Each is predicted, trained for some steps, and compared; the median of the runs' steps counts.
Prints a line for each case, the median error, the share of cases below 20 %, and how often the way that was predicted to be
the fastest is within 5 % of the fastest that was measured. Places are pinned to a core each, as far as there are cores.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from commands import SharedTime, cpu_model, output_of

ROOT = Path(__file__).resolve().parent.parent
# Name, batch to measure up to, batches to draw from, more flags.
MODELS = {
    "mnist-small": (512, [96, 192, 320, 448], []),
    "mnist-large": (128, [24, 48, 72, 96], []),
    "resnet18": (128, [24, 48, 72, 96], ["--image-size", "32"]),
    "resnet18-cifar": (64, [12, 24, 40, 56], ["--image-size", "32"]),
    "vgg11": (32, [12, 20, 24, 28], ["--image-size", "32", "--opt", "sgd"]),
    "resnet50": (32, [12, 20, 24, 28], ["--image-size", "64"]),
}
STEPS, LINE = 40, 10


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", default=str(ROOT / "build/release/bin/lockstep"))
    parser.add_argument("--cases", type=int, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--places", default="1,2", help="numbers of places; more than cores take turns")
    parser.add_argument("--profiles", help="a folder that keeps the profiles, or has them")
    parser.add_argument("--output", help="a JSON file of all cases")
    return parser.parse_args()


def measure(arguments, model, folder):
    file = Path(folder) / f"{model}.json"
    if not file.exists():
        batch, _, flags = MODELS[model]
        output_of([arguments.lockstep, "plan", "--measure", "--model", model, "--batch", str(batch), "--save", str(file), "--", *flags])
    return file


def draw_case(generator, models, places):
    model = generator.choice(models)
    count = generator.choice(places)
    batch = generator.choice(MODELS[model][1])
    if count == 1:
        return {"model": model, "way": "serial", "places": 1, "batch": batch}
    way = generator.choice(["dp", "ddp", "mp", "pp"])
    case = {"model": model, "way": way, "places": count, "batch": batch}
    if way == "pp":
        case["schedule"] = generator.choice(["gpipe", "1f1b", "zero-bubble"])
        case["chunks"] = generator.choice([chunks for chunks in (2, 4, 8) if batch % chunks == 0])
    return case


def draw_cases(arguments, models):
    generator, cases = random.Random(arguments.seed), []
    places = [int(count) for count in arguments.places.split(",")]
    for _ in range(100000):
        case = draw_case(generator, models, places)
        if case["batch"] % case["places"] == 0 and case not in cases:
            cases.append(case)
        if len(cases) == arguments.cases:
            break
    return cases


def predict(arguments, case, profile):
    command = [arguments.lockstep, "plan", "--profile", str(profile), "--batch", str(case["batch"]), "--places", str(case["places"])]
    command += ["--ways", case["way"], "--json"]
    if "chunks" in case:
        command += ["--schedule", case["schedule"], "--chunks", str(case["chunks"])]
    choices = json.loads(output_of(command).strip().split("\n")[-1])["choices"]
    return choices[0]["step_seconds"] if choices else None


def training(arguments, case, run):
    command = [arguments.lockstep, "train", "--model", case["model"], "--data", "mock:constant", *MODELS[case["model"]][2]]
    replicas = case["places"] if case["way"] in ("dp", "ddp") else 1
    command += ["--batch-size", str(case["batch"] // replicas), "--max-steps", str(STEPS), "--epochs", str(STEPS)]
    command += ["--log-interval", str(LINE), "--val-interval", "never", "--snapshot-interval", "never", "--progress", "none"]
    command += ["--parallel", case["way"], "--output", run]
    if case["way"] == "ddp":
        command += ["--nproc-per-node", str(case["places"])]
    elif case["way"] != "serial":
        command += ["--places", str(case["places"])]
    if case["way"] in ("mp", "pp"):
        command += ["--balance", "time"]
    if "chunks" in case:
        command += ["--schedule", case["schedule"], "--chunks", str(case["chunks"])]
    return command


def train(arguments, case):
    """Returns the seconds of a step, and the share of the machine that other programs used."""
    cores = min(case["places"], os.cpu_count())
    with tempfile.TemporaryDirectory() as folder:
        shared = SharedTime()
        pinned = ["taskset", "-c", ",".join(str(core) for core in range(cores)), "env", "OMP_NUM_THREADS=1"]
        done = subprocess.run(pinned + training(arguments, case, f"{folder}/run"), capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{case}\n{done.stderr[-2000:]}")
        lines = [json.loads(line) for line in Path(f"{folder}/run/metrics.jsonl").read_text().split("\n") if line.startswith("{")]
    steps = [line["step_ms"] / 1e3 for line in lines if line["split"] == "train" and line["rank"] == 0]
    return statistics.median(steps[1:]), shared.of_others()


def name_of(case):
    schedule = f" {case['schedule']} {case['chunks']}" if "chunks" in case else ""
    return f"{case['model']:15} {case['way']:6} x {case['places']}  batch {case['batch']:4}{schedule}"


def report(cases):
    errors = sorted(abs(case["predicted"] / case["measured"] - 1) for case in cases)
    below = sum(error < 0.2 for error in errors) / len(errors)
    print(f"{len(cases)} cases: median error {statistics.median(errors):.1%}, below 20 % in {below:.0%}, largest {errors[-1]:.1%}")
    for key in ("model", "way"):
        for value in sorted({case[key] for case in cases}):
            own = [case["predicted"] / case["measured"] - 1 for case in cases if case[key] == value]
            print(f"  {value:15} {len(own):3} cases, median error {statistics.median(map(abs, own)):6.1%}, bias {statistics.median(own):+6.1%}")


def main():
    arguments = parse_arguments()
    models = arguments.models.split(",")
    print(f"{cpu_model()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}", flush=True)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(arguments.profiles or made)
        folder.mkdir(exist_ok=True)
        profiles = {model: measure(arguments, model, folder) for model in models}
        cases = draw_cases(arguments, models)
        for case in cases:
            case["predicted"] = predict(arguments, case, profiles[case["model"]])
            case["measured"], case["others"] = train(arguments, case)
            error = case["predicted"] / case["measured"] - 1
            print(f"{name_of(case):58} predicted {1e3 * case['predicted']:8.2f} ms  measured {1e3 * case['measured']:8.2f}  {error:+6.1%}"
                  f"  others {case['others']:4.0%}", flush=True)
    report(cases)
    if arguments.output:
        Path(arguments.output).write_text(json.dumps({"cpu": cpu_model(), "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
