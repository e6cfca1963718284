#!/usr/bin/env python3
"""Makes the golden files of a version: make_golden.py LOCKSTEP [--bench].

runs/ has three runs of `lockstep train` by their command.txt, bench/ what `lockstep bench all --quick --rounds 1` leaves (some
minutes), and *_report.json what `lockstep report --json` makes of them, less the sentences of studies.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
KEPT_OF_BENCH = ("bench.json", "environment.json", "samples.jsonl")


def run(lockstep, *words, folder):
    done = subprocess.run([lockstep, *words], cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def report(lockstep, name, *paths, folder):
    made = json.loads(run(lockstep, "report", *paths, "--json", folder=folder).splitlines()[-1])
    for study in made.get("studies", []):
        for key in [key for key in study if key not in ("study", "cells")]:
            del study[key]
    (HERE / name).write_text(json.dumps(made) + "\n")


def make_runs(lockstep):
    for run_folder in sorted(path for path in (HERE / "runs").iterdir() if path.is_dir()):
        command = (run_folder / "command.txt").read_text()
        shutil.rmtree(run_folder)
        run(lockstep, *command.split()[1:], folder=HERE / "runs")
        (run_folder / "command.txt").write_text(command)
    report(lockstep, "runs_report.json", "serial", "ddp", "pp", folder=HERE / "runs")
    for page in HERE.glob("runs/*/report.html"):  # which nobody reads again
        page.unlink()


def make_bench(lockstep):
    with tempfile.TemporaryDirectory() as folder:
        run(lockstep, "bench", "all", "--quick", "--rounds", "1", "--output", "bench", folder=folder)
        for name in KEPT_OF_BENCH:
            shutil.copy(Path(folder) / "bench" / name, HERE / "bench" / name)
        report(lockstep, "bench_report.json", "bench", folder=folder)


if __name__ == "__main__":
    program = str(Path(sys.argv[1]).resolve())
    make_runs(program)
    if "--bench" in sys.argv[2:]:
        make_bench(program)
