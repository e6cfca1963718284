#!/usr/bin/env python3
"""Trains exported nets of Python by every way of the command: do they end with the weights of the serial run, killed or not?

    peer/bin/python benchmarks/exported_ways.py [NET...] [--only WORD] [--lockstep build/release/bin/lockstep] [--type float32]

ResNet50, GPT-2 with tied embeddings, T5 and a U-Net with skips, small, without dropout, in fp64 behind inputs of fp32: 12 steps of
16 samples of SGD with momentum. Differences are relative to a tensor's largest number; 1e-10 counts as equal, in fp32 1e-3. With
batch norm, ddp synchronises it; a net in pieces has that of the pieces, so it is compared with a serial run that accumulates
pieces of that size, and in dp, where running statistics are those of the first replica, by its parameters alone.

Then runs are killed after their third snapshot, all processes at once, and resumed: no bit may differ from the uninterrupted run.
Last, `lockstep eval` and Python, with the weights that `lockstep convert` put into the program, measure the same loss and
accuracy, of words the perplexity. Exits with 1 if something differs or is refused. Needs a Python with torch, timm, transformers
and safetensors.
"""

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from commands import last_json, output_of, parser_of
from peers import exported_nets
from resume import victims
from resume.outcome import differences, outcome

SAMPLES, BATCH, CHUNKS, STEPS = {"train": 64, "test": 24}, 16, 4, 12
TOLERANCES = {"float64": 1e-10, "float32": 1e-3}
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@dataclass
class Net:
    """A net of exported_nets, and what it is to learn of its inputs: a class, or one for each word or pixel."""

    make: Callable
    target: Callable
    task: str
    measure: str  # of the command's evaluation: an accuracy, or the perplexity
    has_batch_norm: bool = False


NETS = {
    "resnet50": Net(lambda: exported_nets.of_timm("resnet50", 32, base_width=16),
                    lambda x: x[:, 0, :2, :5].flatten(1).argmax(1), "classification", "accuracy", has_batch_norm=True),
    "gpt2": Net(lambda: exported_nets.of_transformers("GPT2", "GPT2LMHeadModel", "input_ids", n_layer=4, n_head=2, n_embd=32,
                                                      n_positions=64),
                lambda words: (words * 7 + 3) % exported_nets.WORDS, "tokens", "perplexity"),
    "t5": Net(exported_nets.NETS["t5"], lambda words, before: words[:, :before.shape[1]], "tokens", "perplexity"),
    "unet": Net(exported_nets.NETS["unet"], lambda x: (x[:, 0] > 0).long(), "segmentation", "pixel_accuracy", has_batch_norm=True),
}


class OfType(torch.nn.Module):
    """Computes in this type; the command's data are float32."""

    def __init__(self, net, kind):
        super().__init__()
        self.net, self.kind = net.to(kind), kind

    def forward(self, *inputs):
        return self.net(*(x.to(self.kind) if x.is_floating_point() else x for x in inputs))


def pieces(size):
    return ["--batch-size", str(size), "--grad-accum-steps", str(BATCH // size)]


SERIAL = {"whole": [], "halves": pieces(BATCH // 2), "micro-batches": pieces(BATCH // CHUNKS)}
HALF = ["--batch-size", str(BATCH // 2)]
RANKS = [*HALF, "--nproc-per-node", "2"]
STAGED = ["--chunks", str(CHUNKS), "--parallel", "pp"]


def ways(net):
    """Returns the flags of each way, and which serial run it equals with batch norms."""
    synchronised = ["--sync-batch-norm"] if net.has_batch_norm else []
    found = {
        "dp, 2 places": (["--parallel", "dp", "--places", "2", *HALF], "halves"),
        "ddp, 2 ranks": ([*RANKS, *synchronised], "whole"),
        "ddp, 2 places": (["--parallel", "ddp", "--places", "2", *HALF, *synchronised], "whole"),
        "ddp, 2 ranks, ZeRO-1": ([*RANKS, "--shard-optimizer", *synchronised], "whole"),
        "fsdp, 2 ranks": ([*RANKS, "--parallel", "fsdp", *synchronised], "whole"),
        "fsdp, 4 ranks": (["--batch-size", str(BATCH // 4), "--nproc-per-node", "4", "--parallel", "fsdp", *synchronised], "whole"),
        "fsdp, 2 places, whole until backward": (
            [*HALF, "--places", "2", "--parallel", "fsdp", "--reshard", "never", *synchronised], "whole"),
    }
    for stages in 2, 4:
        places = ["--places", str(stages)]
        found[f"mp, {stages} stages"] = (["--parallel", "mp", *places], "whole")
        for schedule in "sequential", "gpipe", "1f1b", "zero-bubble":
            found[f"pp, {stages} stages, {schedule}"] = ([*STAGED, *places, "--schedule", schedule], "micro-batches")
    for schedule in "interleaved", "zero-bubble":
        found[f"pp, 4 stages in 2 places, {schedule}"] = (
            [*STAGED, "--places", "2", "--schedule", schedule, "--stages-per-place", "2"], "micro-batches")
    found["pp, 2 ranks, 1f1b"] = ([*STAGED, "--nproc-per-node", "2"], "micro-batches")
    return found


class Bench:
    """A net, its files and its runs."""

    def __init__(self, lockstep, net, kind, folder):
        self.lockstep, self.net, self.folder = lockstep, net, folder
        torch.manual_seed(0)
        module, inputs, dims = net.make()
        exported_nets.turn_dropouts_off(module)
        self.module = OfType(module, kind).train()
        self.program = folder / "net.pt2"
        shapes = tuple({0: exported_nets.BATCH} for _ in dims)
        torch.export.save(torch.export.export(self.module, inputs, dynamic_shapes=(shapes,)), self.program)
        self.names = [f"input{i}" for i in range(len(inputs))]
        self.test = [self.write(part, count, inputs) for part, count in SAMPLES.items()][-1]

    def write(self, part, count, like):
        """Writes the samples of a part, and returns inputs and target."""
        inputs = [torch.randn(count, *x.shape[1:]) if x.is_floating_point() else
                  torch.randint(0, exported_nets.WORDS, (count, *x.shape[1:])) for x in like]
        target = self.net.target(*inputs).contiguous()
        save_file(dict(zip(self.names, inputs)) | {"target": target}, self.folder / f"{part}.safetensors")
        return inputs, target

    def command(self, name, flags):
        """Returns the command that trains, into a folder of this name."""
        common = ["--model", str(self.program), "--data", f"tensors:{self.folder}", "--inputs", ",".join(self.names),
                  "--task", self.net.task, "--opt", "sgd", "--lr", "0.01", "--epochs", "3", "--max-steps", str(STEPS),
                  "--log-interval", "1", "--val-interval", "never", "--progress", "none", "--json"]
        sizes = [] if "--batch-size" in flags else ["--batch-size", str(BATCH)]
        return [self.lockstep, "train", *common, *sizes, *flags, "--output", str(self.folder / name)]

    def train(self, name, flags):
        """Returns the folder of a finished run, or why there is none."""
        run = self.folder / name
        if not (run / "summary.json").exists():
            done = subprocess.run(self.command(name, flags), capture_output=True, text=True, timeout=1800)
            if done.returncode:
                said = done.stderr.strip().splitlines()
                return ([line for line in said if " train: " in line] or said or [f"code {done.returncode}"])[-1]
        return run

    def compared(self, way, flags, serial, tolerance):
        """Returns how the weights of a way differ from those of a serial run, and whether that is equal."""
        run = self.train(way, flags)
        if isinstance(run, str):
            return "refused: " + run, False
        serial = serial if self.net.has_batch_norm else "whole"
        expected = self.train(f"serial, {serial}", SERIAL[serial])
        ours, theirs = (load_file(folder / "model.safetensors") for folder in (run, expected))
        if ours.keys() != theirs.keys():
            return "other tensors: " + ", ".join(ours.keys() ^ theirs.keys()), False
        left_out = STATISTICS if self.net.has_batch_norm and way.startswith("dp") else ()
        worst, name = max((difference(ours[name], theirs[name]), name) for name in ours if not name.endswith(left_out))
        equal = worst <= tolerance
        return f"{worst:.1e} to serial, {serial}" + ("" if equal else f", in {name}"), equal

    def resumed(self, way, flags):
        """Kills a run, resumes it, and returns the first difference to one that went through."""
        flags = [*flags, "--snapshot-interval", "2steps"]
        expected = self.train(f"{way}, whole", flags)
        if isinstance(expected, str):
            return "refused: " + expected, False
        run = self.folder / f"{way}, killed"
        process = subprocess.Popen(self.command(run.name, flags), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if not victims.wait_for(victims.Moment("latest", 0, save=3), run, process, time.monotonic()):
            return "ended before it was killed", False
        victims.strike("all", run)
        process.wait()
        if left := victims.wait_until_gone(run):
            return f"not killed: {left}", False
        resumed = self.train(run.name, [*flags, "--resume", "auto"])
        if isinstance(resumed, str):
            return "not resumed: " + resumed, False
        found = differences(outcome(expected), outcome(run))
        origin = json.loads((run / "summary.json").read_text())["resumed_from"]
        return found[0] if found else f"the same bits, from {origin and Path(origin).name}", bool(origin) and not found

    def evaluated(self, tolerance):
        """Compares loss and accuracy of the serial run's weights with Python's."""
        run, trained = self.train("serial, whole", []), self.folder / "trained.pt2"
        ours = last_json(output_of([self.lockstep, "eval", "--run", str(run), "--json"]))
        output_of([self.lockstep, "convert", str(run), str(self.program), "--output", str(trained)])
        self.module.load_state_dict(torch.export.load(trained).state_dict)
        inputs, target = self.test
        with torch.no_grad():
            scores = self.module.eval()(*inputs)
        if self.net.task == "tokens":
            scores = scores.transpose(1, 2)
        loss = F.cross_entropy(scores, target)
        hits = (scores.argmax(1) == target).double().mean()
        theirs = {"loss": loss.item(), self.net.measure: (loss.exp() if self.net.task == "tokens" else hits).item()}
        equal = all(abs(ours[name] - value) <= tolerance * value for name, value in theirs.items())
        digits = 6 if equal else 12
        return ", ".join(f"{name} {ours[name]:.{digits}f}, Python {value:.{digits}f}" for name, value in theirs.items()), equal


def difference(ours, theirs):
    """Returns the largest difference, relative to the largest number of a tensor or to 1e-3."""
    scale = max(theirs.double().abs().max().item(), 1e-3)
    return ((ours.double() - theirs.double()).abs().max() / scale).nan_to_num(nan=torch.inf).item()


def trials(bench, tolerance):
    """Returns what is tried, by name."""
    all_ways = ways(bench.net)
    found = {way: lambda way=way: bench.compared(way, *all_ways[way], tolerance) for way in all_ways}
    for way in "serial", "ddp, 2 ranks, ZeRO-1", "fsdp, 2 ranks", "pp, 2 stages, 1f1b":
        found[f"{way}: killed and resumed"] = lambda way=way: bench.resumed(way, all_ways[way][0] if way in all_ways else [])
    return found | {"eval": lambda: bench.evaluated(tolerance)}


def main():
    parser = parser_of(__doc__)
    parser.add_argument("nets", nargs="*", help=", ".join(NETS))
    parser.add_argument("--only", default="", help="ways whose name has this word")
    parser.add_argument("--type", choices=TOLERANCES, default="float64")
    given = parser.parse_args()
    torch.set_num_threads(1)
    verdicts = []
    print("| net | way | |\n|---|---|---|")
    for name in given.nets or NETS:
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(given.lockstep, NETS[name], getattr(torch, given.type), Path(folder))
            for way, compare in trials(bench, TOLERANCES[given.type]).items():
                if given.only in way:
                    text, equal = compare()
                    verdicts.append(equal)
                    print(f"| {name} | {way} | {text if equal else '**' + text + '**'} |", flush=True)
    print(f"\n{sum(verdicts)} of {len(verdicts)} are equal.")
    return 0 if verdicts and all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
