#!/usr/bin/env python3
"""Measures how far the steps that `lockstep plan` predicts are from those that `lockstep train` makes.

    benchmarks/plan_accuracy.py --cases 120 --questions 10 --kept FOLDER --picture accuracy.svg

Cases are drawn by a seed: a model, a way, a number of places, a batch that was not measured; a third of them on two hosts within this
machine, joined by links of 0.1, 1 or 10 Gbit/s (needs root; --links none leaves them out). A question is a model, a batch and a number of
places: all its ways are trained, and the one that was predicted to be the fastest should be within 5 % of the fastest.

Links are measured by `lockstep collectives`. Then, one model after the other, since machines drift: in each of some rounds the model is
measured by `lockstep plan --measure`, and its cases and questions are trained for some steps. Medians over the rounds are compared: of what
is predicted from each profile, and of the trainings; a star marks one outside of its interval, and `drift` is by how much its trainings
differ. What a case's first training tells of its later ones is about the best that a planner could reach. Places are pinned to a core each,
as far as there are cores.

FOLDER keeps profiles, links and what was trained: the same command goes on where it ended (--minutes), and predicts all cases anew. A
planner that was changed because of some cases is judged by others: another --seed.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from commands import cpu_model, output_of
from plan_cases.drawn import MODELS, RATES, draw_cases, draw_questions, name_of
from plan_cases.picture import scatter
from plan_cases.trained import Trainings

ROOT = Path(__file__).resolve().parent.parent
GOOD = 0.05  # what a pick may lose


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", default=str(ROOT / "build/release/bin/lockstep"))
    parser.add_argument("--cases", type=int, default=120)
    parser.add_argument("--questions", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3, help="of measuring a model and training its cases")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--places", default="1,2,4", help="numbers of places; more than cores take turns")
    parser.add_argument("--links", default=",".join(RATES), help="rates between two hosts of this machine, or none")
    parser.add_argument("--kept", help="a folder for profiles, links and trainings")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="after which no training begins")
    parser.add_argument("--picture", help="an SVG file: predicted against measured")
    return parser.parse_args()


def rates_of(arguments):
    return [] if arguments.links == "none" else arguments.links.split(",")


def profile_of(model, number, folder):
    return folder / f"{model}.{number}.json"


def measure(arguments, model, file):
    batches, _, flags = MODELS[model]
    words = [arguments.lockstep, "plan", "--measure", "--model", model, "--measure-batches", ",".join(map(str, batches))]
    words += ["--measure-rounds", "1"]
    output_of([*words, "--save", str(file), "--", *flags])


def measure_link(arguments, rate, folder):
    """The messages of one rank on each of two hosts; `lockstep plan` makes a link of them."""
    link = Path(folder) / f"link-{rate}"
    if not (link / "collectives.jsonl").exists():
        hosts = [arguments.lockstep, "hosts", "--count", "2", "--rate", rate, "--", arguments.lockstep, "run", "--nproc-per-node", "1"]
        sweep = ["collectives", "--backend", "gloo", "--min-bytes", "16K", "--max-bytes", "64M", "--iterations", "5"]
        output_of([*hosts, "--", arguments.lockstep, *sweep, "--output", str(link)])
    return link / "collectives.jsonl"


def choice_of(lockstep, case, profile, links):
    command = [lockstep, "plan", "--profile", str(profile), "--batch", str(case["batch"]), "--places", str(case["places"])]
    command += ["--ways", case["way"], "--json"]
    if "link" in case:
        command += ["--nodes", "2", "--link", str(links[case["link"]]), "--made-hosts"]
    if "chunks" in case:
        command += ["--schedule", case["schedule"], "--chunks", str(case["chunks"])]
    return json.loads(output_of(command).strip().split("\n")[-1])["choices"][0]


def predict(lockstep, case, profiles, links):
    """Adds the medians of what the profiles predict."""
    choices = [choice_of(lockstep, case, profile, links) for profile in profiles]
    for key, name in {"predicted": "step_seconds", "least": "least_seconds", "most": "most_seconds", "predicted_bytes": "memory_bytes"}.items():
        case[key] = statistics.median(choice[name] for choice in choices)


class Comparison:
    """Of predictions and trainings, as long as there is time."""

    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.end = time.monotonic() + 60 * arguments.minutes
        self.trainings = Trainings(arguments.lockstep, folder / "trainings.jsonl")
        self.links = {rate: measure_link(arguments, rate, folder) for rate in rates_of(arguments)}

    def has_time(self):
        return time.monotonic() < self.end

    def profiles_of(self, model):
        files = [profile_of(model, number, self.folder) for number in range(self.arguments.rounds)]
        return [file for file in files if file.exists()]

    def measure(self, model, number):
        """Returns False for a model that was not measured in this round and cannot be any more."""
        profile = profile_of(model, number, self.folder)
        if not profile.exists() and self.has_time():
            measure(self.arguments, model, profile)
        return profile.exists()

    def predict(self, cases):
        for case in cases:
            predict(self.arguments.lockstep, case, self.profiles_of(case["model"]), self.links)

    def train_once(self, case, number):
        if self.trainings.number_of(case) <= number and self.has_time():
            result = self.trainings.train(case)
            print(f"round {number + 1}: {name_of(case)}: {1e3 * result['measured']:.2f} ms", file=sys.stderr, flush=True)

    def train(self, model, cases):
        """All of one model, in rounds, as long as there is time."""
        for number in range(self.arguments.rounds):
            if not self.measure(model, number):
                break
            if number == 0:
                self.predict(cases)  # how long a training has to be
            for case in cases:
                self.train_once(case, number)

    def of_all(self, cases):
        """Returns those of a model's cases that were trained, with what was predicted and measured."""
        cases = [case for case in cases if self.trainings.number_of(case) > 0]
        self.predict(cases)
        for case in cases:
            case.update(self.trainings.of(case))
            error = case["predicted"] / case["measured"] - 1
            outside = " " if case["least"] <= case["measured"] <= case["most"] else "*"
            print(f"{name_of(case):64} predicted {1e3 * case['predicted']:8.2f} ms  measured {1e3 * case['measured']:8.2f}{outside}"
                  f" {error:+6.1%}  drift {case['drift']:4.0%}  others {case['others']:4.0%}", flush=True)
        return cases


def error_line(label, cases, key="measured", predicted="predicted"):
    errors = [case[predicted] / case[key] - 1 for case in cases]
    print(f"  {label:24} {len(errors):3} cases, median error {statistics.median(map(abs, errors)):6.1%}, bias {statistics.median(errors):+6.1%}")


def report_repeated(cases):
    """How well a training predicts the same training, some minutes later: about the best that a planner could do."""
    if not cases:
        return
    errors = [abs(case["first"] / case["later"] - 1) for case in cases]
    print(f"  a case's first training is off from the median of its later ones by {statistics.median(errors):.1%} in the median, by less than"
          f" 20 % in {sum(error < 0.2 for error in errors) / len(errors):.0%} of {len(errors)}; all of them differ by"
          f" {statistics.median(case['drift'] for case in cases):.1%} in the median")


def report(cases):
    errors = sorted(abs(case["predicted"] / case["measured"] - 1) for case in cases)
    below = sum(error < 0.2 for error in errors) / len(errors)
    held = sum(case["least"] <= case["measured"] <= case["most"] for case in cases) / len(cases)
    print(f"{len(cases)} cases: median error {statistics.median(errors):.1%}, below 20 % in {below:.0%}, largest {errors[-1]:.1%};"
          f" {held:.0%} within their interval")
    report_repeated([case for case in cases if case["later"]])
    keys = {"model": lambda case: case["model"], "way": lambda case: case["way"] + (" between hosts" if "link" in case else ""),
            "places": lambda case: f"{case['places']} places a host", "link": lambda case: case.get("link", "one host")}
    for key in keys.values():
        for value in sorted({key(case) for case in cases}):
            error_line(value, [case for case in cases if key(case) == value])
    with_memory = [case for case in cases if "measured_bytes" in case]
    if with_memory:
        error_line("peak memory", with_memory, "measured_bytes", "predicted_bytes")
        near = sum(abs(case["predicted_bytes"] / case["measured_bytes"] - 1) <= 0.1 for case in with_memory)
        print(f"  peak memory is within 10 % in {near} of {len(with_memory)} cases")


def lost_by(ways, chosen_by, judged_by):
    """Returns the way that is the fastest by one number, and what it loses to the fastest by the other one."""
    chosen, best = (min(ways, key=lambda case: case[key]) for key in (chosen_by, judged_by))
    return chosen, chosen[judged_by] / best[judged_by] - 1


def answer(comparison, ways):
    """Prints what the predicted pick loses to the fastest, and returns whether it is good, and whether the pick of the first training of each
    way is, judged by the later ones; None if there was no time for all ways."""
    trained = comparison.of_all(ways)
    if len(trained) < len(ways):
        return None
    picked, lost = lost_by(trained, "predicted", "measured")
    best = min(trained, key=lambda case: case["measured"])
    print(f"question: picked {name_of(picked)}; the fastest was {name_of(best)}; {lost:.1%} slower", flush=True)
    was_repeated = all(case["later"] for case in trained)
    return lost <= GOOD, was_repeated and lost_by(trained, "first", "later")[1] <= GOOD


def compare_all(arguments, folder):
    """Returns the cases that were trained, and of each question that there was time for if its pick is good."""
    models, places = arguments.models.split(","), [int(count) for count in arguments.places.split(",")]
    comparison = Comparison(arguments, folder)
    drawn = draw_cases(arguments.cases, arguments.seed, models, places, rates_of(arguments))
    questions = draw_questions(arguments.questions, arguments.seed, models, places)
    cases, answers = [], []
    for model in models:
        own = [case for case in drawn if case["model"] == model]
        asked = [ways for ways in questions if ways[0]["model"] == model]
        comparison.train(model, own + [way for ways in asked for way in ways])
        cases += comparison.of_all(own)
        answers += [answer(comparison, ways) for ways in asked]
    return cases, [each for each in answers if each is not None]


def main():
    arguments = parse_arguments()
    print(f"{cpu_model()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}", flush=True)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(arguments.kept or made)
        folder.mkdir(exist_ok=True)
        cases, answers = compare_all(arguments, folder)
    if cases:
        report(cases)
    if answers:
        good, repeated = (sum(kind) for kind in zip(*answers))
        print(f"{good} of {len(answers)} picks are within 5 % of the fastest; of those by each way's first training, judged by its later ones, {repeated} are")
    if arguments.picture and cases:
        Path(arguments.picture).write_text(scatter(cases))


if __name__ == "__main__":
    main()
