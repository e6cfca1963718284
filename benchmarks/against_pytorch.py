#!/usr/bin/env python3
"""Times training of twelve nets in Lockstep, in Python PyTorch and in JAX, in turn on the same cores, and prints the ratios of medians.

    python3 -m venv peer && peer/bin/pip install torch==2.15.0 torchvision timm transformers==5.24.0 safetensors "Pillow<13"
    python3 -m venv jax && jax/bin/pip install jax==0.10.2 safetensors
    benchmarks/against_pytorch.py --peer-python peer/bin/python --jax-python jax/bin/python --json fp32.json
    benchmarks/against_pytorch.py --peer-python peer/bin/python --precision bf16-mixed --json bf16.json
    benchmarks/against_pytorch.py --peer-python peer/bin/python --only resnet50 vgg19-224 --rounds 5

The nets, their batches and optimizers are in peers/works.py, where --only finds more. Lockstep trains by name what is in its own catalogue, on
images of noise, and all else from what Python exports; PyTorch (peers/nets.py) reads batches that lie in memory.

Each side first runs each of its settings once, and goes on with the best. Of all that is two ranks of one thread or one of two; of PyTorch
also eager or compiled, and images channels-last or not, of which compiled runs take what is faster in eager ones; of JAX (peers/nets_jax.py,
three nets, after a check that they compute what PyTorch does) some flags of XLA. What fails is named beside the best, and where nothing works, the
error goes to stderr. In bf16 PyTorch runs under autocast. The time of a step is the median over the lines of a run, without the first.

With --json a second run goes on with the nets that are not yet in the file; those that a side could not train are tried again. It does not see
whether Lockstep or a peer has changed since: then name another file.

A share is that of the roof, which is a large product on all cores in PyTorch, and counts the arithmetic of direct convolutions: Winograd's form
needs less, so a share may be above 1. To see on a processor with AVX-512 what AVX2 does: LOCKSTEP_TEST_CPU_FEATURES=avx2 ONEDNN_MAX_CPU_ISA=AVX2
ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 XLA_FLAGS=--xla_cpu_max_isa=AVX2.
"""

import json
import math
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from commands import (ROOT, Failed, SharedTime, bold_ratio, cpu_model, last_json, output_of, parser_of, ratio_of, seconds_of_step, setting, steps_of,
                      with_range)
from peers.works import IN_JAX, TWELVE, WORKS

PYTORCH, JAX = ROOT / "benchmarks/peers/nets.py", ROOT / "benchmarks/peers/nets_jax.py"
LINES = 6
CORES = os.cpu_count()
OPTIMIZERS = {"adam": "--opt adam --lr 0.001", "adamw": "--opt adamw --lr 0.001", "sgd": "--opt sgd --momentum 0.9 --lr 0.01"}
FLAGS_OF_XLA = ["xla_cpu_enable_fast_math=true", "xla_cpu_use_onednn=true", "xla_cpu_use_xnnpack=true"]


def parse_arguments():
    parser = parser_of(__doc__)
    parser.add_argument("--peer-python", required=True, help="a Python that can import torch 2.15, torchvision, timm, transformers, safetensors")
    parser.add_argument("--jax-python", help="a Python that can import jax and safetensors; without it JAX is left out")
    parser.add_argument("--only", nargs="+", choices=WORKS, metavar="NET", help=f"the twelve, unless given, of {', '.join(WORKS)}")
    parser.add_argument("--precision", choices=["32", "bf16-mixed"], default="32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, help=f"of each run, a multiple of {LINES}; the net's own, unless given")
    parser.add_argument("--no-compile", action="store_true", help="leave out PyTorch's compiled settings, which take minutes each")
    parser.add_argument("--json", metavar="FILE", help="keep what was measured, and go on from it")
    arguments = parser.parse_args()
    if arguments.steps is not None and (arguments.steps < LINES or arguments.steps % LINES):
        parser.error(f"--steps: {arguments.steps} is no multiple of {LINES}")
    return arguments


@dataclass(frozen=True)
class Setting:
    """So many ranks, which share the cores, and more flags."""

    ranks: int
    flags: tuple = ()

    def threads(self):
        return CORES // self.ranks

    def __str__(self):
        return ", ".join([f"{self.ranks}x{self.threads()}", *(flag.removeprefix("--") for flag in self.flags)])


class Side:
    """A program that trains the net: what its settings reached when tried, and the samples a second of each round."""

    def __init__(self, run):
        self.run, self.tried, self.failed, self.rates = run, {}, {}, []

    def attempt(self, setting):
        """Returns the samples a second of one run, 0 if it fails."""
        try:
            self.tried[setting] = self.run(setting)
        except Failed as failure:
            self.failed[setting] = str(failure)
        return self.tried.get(setting, 0)

    def best(self):
        return max(self.tried, key=self.tried.get)

    def measure(self):
        """Runs the best setting, if there is one that works."""
        if self.tried:
            self.rates.append(self.run(self.best()))

    def record(self):
        tried, failed = ({str(setting): value for setting, value in of.items()} for of in (self.tried, self.failed))
        return {"rates": self.rates, "setting": str(self.best()) if tried else "", "tried": tried, "failed": failed}


class Net:
    """The runs of a net; nets.py makes the folder's files, and tells of the net."""

    def __init__(self, arguments, name, folder):
        self.arguments, self.name, self.folder, self.work = arguments, name, folder, WORKS[name]
        self.steps = arguments.steps or self.work.steps
        self.common = ["--net", name, "--steps", str(self.steps), "--lines", str(LINES), "--precision", arguments.precision]
        self.made = last_json(output_of([arguments.peer_python, str(PYTORCH), "--net", name, "--make", folder]))

    def by_lockstep(self, setting):
        with tempfile.TemporaryDirectory() as run:
            command = [self.arguments.lockstep, "train", *self.work.flags_of_lockstep(self.folder), "--nproc-per-node", str(setting.ranks)]
            command += ["--batch-size", str(self.work.batch // setting.ranks), "--precision", self.arguments.precision]
            output_of([*command, *OPTIMIZERS[self.work.optimizer].split(), *steps_of(self.steps, LINES), "--output", f"{run}/run"])
            return self.work.batch / seconds_of_step(f"{run}/run")

    def by_pytorch(self, setting):
        command = [self.arguments.peer_python, str(PYTORCH), *self.common, "--ranks", str(setting.ranks), "--threads", str(setting.threads())]
        return self.rate_of(last_json(output_of([*command, *setting.flags])))

    def by_jax(self, setting):
        command = [self.arguments.jax_python, str(JAX), *self.common, "--data", self.folder, "--devices", str(setting.ranks)]
        return self.rate_of(last_json(output_of([*command, *setting.flags])))

    def rate_of(self, printed):
        return self.work.batch / statistics.median(printed["seconds"][1:])

    def sides(self):
        """Returns the sides, each of which has tried its settings."""
        sides = {"Lockstep": Side(self.by_lockstep), "PyTorch": Side(self.by_pytorch)}
        for ranks in self.work.ranks:
            sides["Lockstep"].attempt(Setting(ranks))
            self.try_pytorch(partial(Setting, ranks), sides["PyTorch"])
        if self.arguments.jax_python and self.name in IN_JAX:
            output_of([self.arguments.jax_python, str(JAX), "--net", self.name, "--data", self.folder, "--check"])
            sides["JAX"] = Side(self.by_jax)
            for setting in [Setting(1), Setting(2), *(Setting(1, (f"--xla={flag}",)) for flag in FLAGS_OF_XLA)]:
                sides["JAX"].attempt(setting)
        return sides

    def try_pytorch(self, with_flags, side):
        orders = [(), ("--channels-last",)] if self.made["images"] else [()]
        faster = max(orders, key=lambda order: side.attempt(with_flags(order)))
        if not self.arguments.no_compile:
            side.attempt(with_flags((*faster, "--compile")))


def measure(arguments, name, roof):
    with tempfile.TemporaryDirectory() as folder:
        net = Net(arguments, name, folder)
        sides, busy = net.sides(), SharedTime()
        for _ in range(arguments.rounds):
            for side in sides.values():
                side.measure()
    return {"net": name, "batch": net.work.batch, **net.made, "roof": roof, "others": busy.of_others(), "date": time.strftime("%Y-%m-%d"),
            "sides": {which: side.record() for which, side in sides.items()}}


def row_of(arguments, name, roof):
    """Returns what was measured of a net, or the error for which nothing was."""
    try:
        return measure(arguments, name, roof)
    except Failed as failure:
        return {"net": name, "failure": str(failure), "sides": {}}


def failures_of(row):
    """Returns the errors for which a net, or all settings of a side, could not be measured."""
    errors = ["\n".join(side["failed"].values()) for side in row["sides"].values() if not side["rates"]]
    return [row["failure"]] if "failure" in row else errors


def rates_of(row, which):
    return row["sides"][which]["rates"] if which in row["sides"] else []


def cells(row, which):
    """Returns a side's cells of a table, and for a peer the ratio to it; empty ones if it was not tried."""
    side, own, rates = row["sides"].get(which), rates_of(row, "Lockstep"), rates_of(row, which)
    texts = []
    if rates:
        share = statistics.median(rates) * row["flops_of_a_sample"] / row["roof"]
        texts.append(f"{with_range(rates, ',.4g')}, {share:.2f}, {side['setting']}")
    if side and side["failed"]:
        texts.append(f"failed: {'; '.join(side['failed'])}")
    ratio = bold_ratio(own, rates) if own and rates else ""
    return ["; ".join(texts)] if which == "Lockstep" else ["; ".join(texts), ratio]


def line_of(row, peers):
    if "failure" in row:
        return f"| {row['net']} | | failed |{' |' * (2 * len(peers) + 1)}"
    columns = [row["net"], str(row["batch"]), *cells(row, "Lockstep")]
    for which in peers:
        columns += cells(row, which)
    return f"| {' | '.join(columns)} | {row['others']:.0%} |"


def head_of(peers):
    columns = ["net", "batch", "Lockstep, samples/s, share, ranks x threads"]
    for which in peers:
        columns += [f"{which}'s best", f"**over {which}** (by round)"]
    columns.append("other programs")
    return f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"


def mean_over(rows, which):
    both = {row["net"]: (rates_of(row, "Lockstep"), rates_of(row, which)) for row in rows}
    ratios = {net: ratio_of(*rates)[0] for net, rates in both.items() if all(rates)}
    if not ratios:
        return f"Over {which}: no net."
    mean = math.exp(statistics.mean(map(math.log, ratios.values())))
    least = min(ratios, key=ratios.get)
    return f"Over {which}: geometric mean of {len(ratios)} **{mean:.2f}**, least {ratios[least]:.2f} ({least})."


def rows_of(arguments, about):
    """Returns the rows of an earlier run by their nets, none if there was no such run."""
    if not arguments.json or not Path(arguments.json).exists():
        return {}
    kept = json.loads(Path(arguments.json).read_text())
    if kept["about"] != about:
        raise SystemExit(f"{arguments.json} has other measurements, {kept['about']}, not {about}: name another file")
    return {row["net"]: row for row in kept["rows"]}


def keep(arguments, about, rows):
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"about": about, "rows": list(rows.values())}, indent=1) + "\n")


def main():
    arguments = parse_arguments()
    begin = time.monotonic()
    roof = last_json(output_of([arguments.peer_python, str(PYTORCH), "--roof", "--precision", arguments.precision]))
    about = {"processor": cpu_model(), "instructions": roof["instructions"], "cores": CORES, "precision": arguments.precision,
             "rounds": arguments.rounds, "steps": arguments.steps, "compiled": not arguments.no_compile, "jax": bool(arguments.jax_python)}
    rows = rows_of(arguments, about)
    print(setting(roof["instructions"], arguments.precision, f"{roof['flops'] / 1e9:.3g} GFLOP/s in large products",
                  f"{roof['copied'] / 1e9:.3g} GB/s copied", f"{arguments.rounds} rounds") + "\n")
    nets, peers = arguments.only or list(TWELVE), ["PyTorch", "JAX"] if arguments.jax_python else ["PyTorch"]
    print(head_of(peers), flush=True)
    shown = []
    for name in nets:
        row = rows[name] if name in rows else row_of(arguments, name, roof["flops"])
        shown.append(row)
        print(line_of(row, peers), flush=True)
        failures = failures_of(row)
        if not failures:
            rows[name] = row
            keep(arguments, about, rows)
        for failure in failures:
            print(f"{name}: {failure}", file=sys.stderr, flush=True)
    print("\n" + "\n".join(mean_over(shown, which) for which in peers))
    print(f"{(time.monotonic() - begin) / 60:.0f} minutes.")


if __name__ == "__main__":
    main()
