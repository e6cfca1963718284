#!/usr/bin/env python3
"""Measures how far the steps that `lockstep plan` predicts are from those that `lockstep train` makes.

    python3 benchmarks/plan_accuracy.py --cases 120 --questions 10 --output accuracy.json --picture accuracy.svg

Each model is measured once by `lockstep plan --measure`, each link by `lockstep collectives`. Then cases are drawn by a seed: a model, a way, a number of places, a
batch that was not measured; a third of them on two hosts within this machine, joined by links of 0.1, 1 or 10 Gbit/s (needs root;
--links none leaves them out). Each is predicted, trained for some steps, and compared; the median of the runs' steps counts.
A question is a model, a batch and a number of places: all its ways are trained, and the one that was predicted to be the
fastest should be within 5 % of the fastest. Places are pinned to a core each, as far as there are cores.
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
# Name, batches to measure, batches to draw from, more flags.
MODELS = {
    "mnist-small": ([512, 384, 256, 128, 64, 32, 16], [80, 96, 160, 192, 288, 320, 448], []),
    "mnist-large": ([128, 96, 64, 32, 16, 8, 4], [24, 40, 48, 72, 80, 112], []),
    "resnet18": ([128, 96, 64, 32, 16, 8, 4], [24, 40, 48, 72, 80, 112], ["--image-size", "32"]),
    "resnet18-cifar": ([64, 48, 32, 16, 8, 4], [12, 20, 24, 40, 56], ["--image-size", "32"]),
    "vgg11": ([32, 24, 16, 8, 4], [12, 20, 28], ["--image-size", "32", "--opt", "sgd"]),
    "resnet50": ([32, 24, 16, 8, 4], [12, 20, 28], ["--image-size", "64"]),
}
RATES = ["100mbit", "1gbit", "10gbit"]
SCHEDULES = ["gpipe", "1f1b", "zero-bubble"]
STEPS, LINE = 40, 10


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", default=str(ROOT / "build/release/bin/lockstep"))
    parser.add_argument("--cases", type=int, default=120)
    parser.add_argument("--questions", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--places", default="1,2,4", help="numbers of places; more than cores take turns")
    parser.add_argument("--links", default=",".join(RATES), help="rates between two hosts of this machine, or none")
    parser.add_argument("--profiles", help="a folder that keeps the profiles and links, or has them")
    parser.add_argument("--output", help="a JSON file of all cases")
    parser.add_argument("--picture", help="an SVG file: predicted against measured")
    return parser.parse_args()


def measure(arguments, model, folder):
    file = Path(folder) / f"{model}.json"
    if not file.exists():
        batches, _, flags = MODELS[model]
        words = [arguments.lockstep, "plan", "--measure", "--model", model, "--measure-batches", ",".join(map(str, batches))]
        output_of([*words, "--save", str(file), "--", *flags])
    return file


def measure_link(arguments, rate, folder):
    """The messages of one rank on each of two hosts; `lockstep plan` makes a link of them."""
    link = Path(folder) / f"link-{rate}"
    if not link.exists():
        hosts = [arguments.lockstep, "hosts", "--count", "2", "--rate", rate, "--", arguments.lockstep, "run", "--nproc-per-node", "1"]
        sweep = ["collectives", "--backend", "gloo", "--min-bytes", "16K", "--max-bytes", "16M", "--iterations", "5"]
        output_of([*hosts, "--", arguments.lockstep, *sweep, "--output", str(link)])
    return link / "collectives.jsonl"


def with_schedule(generator, case):
    if case["way"] == "pp":
        case["schedule"] = generator.choice(SCHEDULES)
        case["chunks"] = generator.choice([chunks for chunks in (2, 4, 8) if case["batch"] % chunks == 0])
    return case


def draw_case(generator, models, places, links):
    model = generator.choice(models)
    case = {"model": model, "batch": generator.choice(MODELS[model][1])}
    if links and generator.random() < 1 / 3:
        return {**case, "way": "ddp", "places": generator.choice([1, 2]), "link": generator.choice(links)}
    count = generator.choice(places)
    way = "serial" if count == 1 else generator.choice(["dp", "ddp", "mp", "pp"])
    return with_schedule(generator, {**case, "way": way, "places": count})


def replicas_of(case):
    nodes = 2 if "link" in case else 1
    return nodes * case["places"] if case["way"] in ("dp", "ddp") else 1


def draw_cases(arguments, models):
    generator, cases = random.Random(arguments.seed), []
    places = [int(count) for count in arguments.places.split(",")]
    links = [] if arguments.links == "none" else arguments.links.split(",")
    for _ in range(100000):
        if len(cases) == arguments.cases:
            break
        case = draw_case(generator, models, places, links)
        if case["batch"] % replicas_of(case) == 0 and case not in cases:
            cases.append(case)
    return cases


def ways_of_question(model, batch, places):
    ways = [{"way": way} for way in ("dp", "ddp", "mp")]
    ways += [{"way": "pp", "schedule": schedule, "chunks": 4} for schedule in SCHEDULES if batch % 4 == 0]
    cases = [{"model": model, "batch": batch, "places": places, **way} for way in ways]
    return [{"model": model, "batch": batch, "places": 1, "way": "serial"}] + cases


def draw_questions(arguments, models):
    generator = random.Random(arguments.seed + 1)
    places = [int(count) for count in arguments.places.split(",") if count != "1"]
    all_questions = [(model, batch, count) for model in models for batch in MODELS[model][1] for count in places if batch % count == 0]
    return [ways_of_question(*each) for each in generator.sample(all_questions, min(arguments.questions, len(all_questions)))]


def predict(arguments, case, profiles, links):
    profile = profiles[case["model"]]
    command = [arguments.lockstep, "plan", "--profile", str(profile), "--batch", str(case["batch"]), "--places", str(case["places"])]
    command += ["--ways", case["way"], "--json"]
    if "link" in case:
        command += ["--nodes", "2", "--link", str(links[case["link"]]), "--made-hosts"]
    if "chunks" in case:
        command += ["--schedule", case["schedule"], "--chunks", str(case["chunks"])]
    choice = json.loads(output_of(command).strip().split("\n")[-1])["choices"][0]
    case["predicted"], case["least"], case["most"] = (choice[f"{name}_seconds"] for name in ("step", "least", "most"))
    case["predicted_bytes"] = choice["memory_bytes"]


def training(arguments, case, run):
    command = [arguments.lockstep, "train", "--model", case["model"], "--data", "mock:constant", *MODELS[case["model"]][2]]
    command += ["--batch-size", str(case["batch"] // replicas_of(case)), "--max-steps", str(STEPS), "--epochs", str(STEPS)]
    command += ["--log-interval", str(LINE), "--val-interval", "never", "--snapshot-interval", "never", "--progress", "none"]
    command += ["--parallel", case["way"], "--output", run]
    if case["way"] in ("dp", "mp", "pp"):
        command += ["--places", str(case["places"])]
    if case["way"] in ("mp", "pp"):
        command += ["--balance", "time"]
    if "chunks" in case:
        command += ["--schedule", case["schedule"], "--chunks", str(case["chunks"])]
    if "link" in case:
        hosts = [arguments.lockstep, "hosts", "--count", "2", "--rate", case["link"], "--"]
        return [*hosts, arguments.lockstep, "run", "--nproc-per-node", str(case["places"]), "--", *command]
    return [*command, "--nproc-per-node", str(case["places"])] if case["way"] == "ddp" else command


def train(arguments, case):
    """Fills in the seconds of a step, the memory of a process, and the share of the machine that other programs used."""
    cores = os.cpu_count() if "link" in case else min(case["places"], os.cpu_count())
    with tempfile.TemporaryDirectory() as folder:
        shared = SharedTime()
        pinned = ["taskset", "-c", ",".join(str(core) for core in range(cores)), "env", "OMP_NUM_THREADS=1"]
        done = subprocess.run(pinned + training(arguments, case, f"{folder}/run"), capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{case}\n{done.stderr[-2000:]}")
        lines = [json.loads(line) for line in Path(f"{folder}/run/metrics.jsonl").read_text().split("\n") if line.startswith("{")]
        peak = json.loads(Path(f"{folder}/run/summary.json").read_text()).get("peak_memory_bytes")
    steps = [line["step_ms"] / 1e3 for line in lines if line["split"] == "train" and line["rank"] == 0]
    case["measured"], case["others"] = statistics.median(steps[1:]), shared.of_others()
    if case["way"] in ("serial", "ddp") and peak:
        case["measured_bytes"] = peak / replicas_of(case)


def name_of(case):
    schedule = f" {case['schedule']} {case['chunks']}" if "chunks" in case else ""
    hosts = f"2 hosts, {case['link']} x " if "link" in case else "x "
    return f"{case['model']:15} {case['way']:6} {hosts}{case['places']}  batch {case['batch']:4}{schedule}"


def compare(arguments, case, profiles, links):
    predict(arguments, case, profiles, links)
    train(arguments, case)
    error = case["predicted"] / case["measured"] - 1
    print(f"{name_of(case):64} predicted {1e3 * case['predicted']:8.2f} ms  measured {1e3 * case['measured']:8.2f}  {error:+6.1%}"
          f"  others {case['others']:4.0%}", flush=True)


def error_line(label, cases, key="measured", predicted="predicted"):
    errors = [case[predicted] / case[key] - 1 for case in cases]
    print(f"  {label:24} {len(errors):3} cases, median error {statistics.median(map(abs, errors)):6.1%}, bias {statistics.median(errors):+6.1%}")


def report(cases):
    errors = sorted(abs(case["predicted"] / case["measured"] - 1) for case in cases)
    below = sum(error < 0.2 for error in errors) / len(errors)
    held = sum(case["least"] <= case["measured"] <= case["most"] for case in cases) / len(cases)
    print(f"{len(cases)} cases: median error {statistics.median(errors):.1%}, below 20 % in {below:.0%}, largest {errors[-1]:.1%};"
          f" {held:.0%} within their interval")
    keys = {"model": lambda case: case["model"], "way": lambda case: case["way"] + (" between hosts" if "link" in case else ""),
            "places": lambda case: f"{case['places']} places a host", "link": lambda case: case.get("link", "one host")}
    for key in keys.values():
        for value in sorted({key(case) for case in cases}):
            error_line(value, [case for case in cases if key(case) == value])
    with_memory = [case for case in cases if "measured_bytes" in case]
    if with_memory:
        error_line("peak memory", with_memory, "measured_bytes", "predicted_bytes")


def answer_questions(arguments, questions, profiles):
    good = 0
    for ways in questions:
        for case in ways:
            compare(arguments, case, profiles, {})
        picked = min(ways, key=lambda case: case["predicted"])
        best = min(ways, key=lambda case: case["measured"])
        lost = picked["measured"] / best["measured"] - 1
        good += lost <= 0.05
        print(f"question: picked {name_of(picked)}; the fastest was {name_of(best)}; {lost:.1%} slower", flush=True)
    if questions:
        print(f"{good} of {len(questions)} picks are within 5 % of the fastest")


def picture(cases):
    """A scatter plot of predicted over measured steps, both in logarithmic milliseconds, with a band of 20 %."""
    import math
    size, edge = 480, 48
    values = [math.log10(1e3 * case[key]) for case in cases for key in ("predicted", "measured")]
    least, most = math.floor(min(values)), math.ceil(max(values))
    at = lambda value: edge + (value - least) / (most - least) * (size - 2 * edge)
    ways = ["serial", "dp", "ddp", "mp", "pp", "ddp between hosts"]
    colours = ["#222222", "#0072b2", "#009e73", "#d55e00", "#cc79a7", "#e69f00"]
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size + 150} {size}" font-family="sans-serif" font-size="12">',
             f'<rect width="{size + 150}" height="{size}" fill="white"/>']
    for shift, dash in ((0, ""), (math.log10(1.2), ' stroke-dasharray="4 4"'), (-math.log10(1.2), ' stroke-dasharray="4 4"')):
        parts.append(f'<line x1="{at(least):.1f}" y1="{size - at(least + shift):.1f}" x2="{at(most):.1f}" y2="{size - at(most + shift):.1f}"'
                     f' stroke="#999999"{dash}/>')
    for decade in range(least, most + 1):
        parts.append(f'<text x="{at(decade):.1f}" y="{size - edge + 18}" text-anchor="middle">{10 ** decade:g}</text>')
        parts.append(f'<text x="{edge - 6}" y="{size - at(decade) + 4:.1f}" text-anchor="end">{10 ** decade:g}</text>')
    for case in cases:
        x, y = at(math.log10(1e3 * case["measured"])), size - at(math.log10(1e3 * case["predicted"]))
        way = "ddp between hosts" if "link" in case else case["way"]
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colours[ways.index(way)]}" fill-opacity="0.75"/>')
    for index, (way, colour) in enumerate(zip(ways, colours)):
        parts.append(f'<circle cx="{size - 20}" cy="{edge + 20 * index}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{size - 10}" y="{edge + 20 * index + 4}">{way}</text>')
    parts.append(f'<text x="{size / 2}" y="{size - 8}" text-anchor="middle">measured step [ms]; dashed: 20 % off</text>')
    parts.append(f'<text x="14" y="{size / 2}" text-anchor="middle" transform="rotate(-90 14 {size / 2})">predicted step [ms]</text></svg>')
    return "\n".join(parts) + "\n"


def main():
    arguments = parse_arguments()
    models = arguments.models.split(",")
    print(f"{cpu_model()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}", flush=True)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(arguments.profiles or made)
        folder.mkdir(exist_ok=True)
        profiles = {model: measure(arguments, model, folder) for model in models}
        cases = draw_cases(arguments, models)
        rates = sorted({case["link"] for case in cases if "link" in case})
        links = {rate: measure_link(arguments, rate, folder) for rate in rates}
        for case in cases:
            compare(arguments, case, profiles, links)
        report(cases)
        questions = draw_questions(arguments, models)
        answer_questions(arguments, questions, profiles)
    if arguments.output:
        Path(arguments.output).write_text(json.dumps({"cpu": cpu_model(), "cases": cases, "questions": questions}, indent=1) + "\n")
    if arguments.picture:
        Path(arguments.picture).write_text(picture(cases))


if __name__ == "__main__":
    main()
