#!/usr/bin/env python3
"""Measures how far the steps that `lockstep plan` predicts are from those that `lockstep train` makes.

    benchmarks/plan_accuracy.py --cases 120 --questions 10 --kept FOLDER --picture accuracy.svg

Cases are drawn by a seed: a model, a way, a number of places, a batch that was not measured; a third of them on two hosts within this
machine, joined by links of 0.1, 1 or 10 Gbit/s (needs root; --links none leaves them out). A question is a model, a batch and a number of
places: all its ways are trained, and the one that was predicted to be the fastest should be within 5 % of the fastest; what the planner
picks by each profile alone is told beside it.

Links are measured by `lockstep collectives`. Then, one model after the other, since machines drift: in each of some rounds the model is
measured by `lockstep plan --measure`, and its cases and questions are trained for some steps. Medians over the rounds are compared: of what
is predicted from each profile, and of the trainings; a star marks one outside of its interval, and `drift` is by how much its trainings
differ. What a case's first training tells of its later ones is about the best that a planner could reach. Places are pinned to a core each,
as far as there are cores.

FOLDER keeps profiles, links and what was trained: the same command goes on where it ended (--minutes), and predicts all cases anew. A
planner that was changed because of some cases is judged by others: another --seed.
"""

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from commands import cpu_model, output_of, parser_of
from plan_cases.drawn import MODELS, RATES, draw_cases, draw_questions, name_of
from plan_cases.picture import scatter
from plan_cases.planned import picks_of, predict
from plan_cases.trained import Trainings

GOOD = 0.05  # what a pick may lose


def parse_arguments():
    parser = parser_of(__doc__)
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


def lost_by(ways, chosen, judged_by="measured"):
    """Returns by how much a way is slower than the fastest one."""
    return chosen[judged_by] / min(way[judged_by] for way in ways) - 1


def lost_by_first(ways):
    """Returns what the pick of each way's first training loses, judged by the later ones, if there are any."""
    if not all(way["later"] for way in ways):
        return []
    return [lost_by(ways, min(ways, key=lambda way: way["first"]), "later")]


def answer(comparison, ways):
    """Prints which way is predicted to be the fastest, and which one is. Returns what the first loses; what the pick of the first trainings
    loses; what the planner's own picks lose, by one profile each; and the best of those that it cannot tell apart from them. None if there was
    no time for all ways."""
    trained = comparison.of_all(ways)
    if len(trained) < len(ways):
        return None
    picked, best = (min(trained, key=lambda way: way[key]) for key in ("predicted", "measured"))
    lost = lost_by(trained, picked)
    print(f"question: picked {name_of(picked)}; the fastest was {name_of(best)}; {lost:.1%} slower", flush=True)
    answers = [picks_of(comparison.arguments.lockstep, trained, profile) for profile in comparison.profiles_of(ways[0]["model"])]
    of_picks = [lost_by(trained, picks[-1]) for picks in answers]
    return [lost], lost_by_first(trained), of_picks, [min(lost_by(trained, pick) for pick in picks) for picks in answers]


def compare_all(arguments, folder):
    """Returns the cases that were trained, and of each question that there was time for what its picks lose."""
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


def report_picks(answers):
    good = []
    for kind in zip(*answers):
        lost = [each for losses in kind for each in losses]
        good.append(f"{sum(each <= GOOD for each in lost)} of {len(lost)}")
    print(f"{good[0]} picks are within 5 % of the fastest; of those by each way's first training, judged by its later ones, {good[1]};"
          f" of the planner's by each profile alone, which takes fewer places where it cannot tell ways apart, {good[2]}; of these or one of"
          f" those ways, {good[3]}")


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
        report_picks(answers)
    if arguments.picture and cases:
        Path(arguments.picture).write_text(scatter(cases))


if __name__ == "__main__":
    main()
