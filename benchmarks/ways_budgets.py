#!/usr/bin/env python3
"""Asks `lockstep bench ways` for the fastest way with a short and with a long budget, and tells whether both give the same answer.

    benchmarks/ways_budgets.py --kept FOLDER
    benchmarks/ways_budgets.py --short 10m --long 2h --cases small plugin

A case is a model of ours or of a plugin's. Answers are the same if both advise the same `lockstep train`. A bench ends before its budget
when it is sure. FOLDER keeps the benches: the same command goes on where it ended.
"""

import re
import tempfile
import time
from pathlib import Path

from commands import ROOT, SharedTime, last_json, output_of, parser_of, setting

CASES = {
    "small": ["--model", "mnist-small", "--data", "fashion-mnist"],
    "residual": ["--model", "resnet18-cifar", "--data", "mock", "--", "--image-size", "32"],
    "plugin": ["--plugin", str(ROOT / "build/release/tests/process/plugin/nets.so"), "--model", "mnist-example", "--data", "fashion-mnist"],
}


def parse_arguments():
    parser = parser_of(__doc__)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--short", default="10m")
    parser.add_argument("--long", default="2h")
    parser.add_argument("--kept", help="a folder for the benches")
    return parser.parse_args()


def answer_of(lockstep, case, budget, folder):
    """Returns the fastest cell, the command that is advised, the samples that this took, and the minutes of this call."""
    start = time.monotonic()
    words = [lockstep, "bench", "ways", "--budget", budget, "--output", str(folder), "--json", *CASES[case]]
    study = last_json(output_of(words))["studies"][0]
    advised = next(remark for remark in study["remarks"] if remark.startswith("Train with: "))
    fastest = re.match(r"Fastest: (.*?), [\d.,]+ images/s", study["conclusion"])[1]
    samples = sum(cell["samples"] for cell in study["cells"])
    return fastest, advised, samples, (time.monotonic() - start) / 60


def main():
    arguments = parse_arguments()
    print(setting() + "\n")
    print("| case | budget | fastest | samples | minutes | other programs | same advice |\n|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as made:
        kept = Path(arguments.kept or made)
        kept.mkdir(exist_ok=True)
        for case in arguments.cases:
            advices = []
            for budget in (arguments.short, arguments.long):
                busy = SharedTime()
                fastest, advised, samples, minutes = answer_of(arguments.lockstep, case, budget, kept / f"{case}-{budget}")
                advices.append(advised)
                same = "" if len(advices) == 1 else ("yes" if advices[0] == advices[1] else "**no**")
                print(f"| {case} | {budget} | {fastest} | {samples} | {minutes:.1f} | {busy.of_others():.0%} | {same} |", flush=True)


if __name__ == "__main__":
    main()
