#!/usr/bin/env python3
"""Compares two builds of Lockstep: are the parameters after 20 steps the same bits in every way of training?

    benchmarks/same_results.py --old OTHER/build/release/bin --new build/release/bin

Each way is trained by both programs from the same seed, and a run that the old program began is resumed by the new one. A hash
depends on the processor and on LibTorch's kernels, so both sides run here and no hash is written down.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STEPS = 20
COMMON = ["--log-interval", "5", "--progress", "none", "--json", "--batch-size", "32", "--limit-train-batches", "30",
          "--val-interval", "never"]
TOY = ["--model", "toy", "--data", "mock"]
NET = ["--model", "mnist-small", "--data", "fashion-mnist"]
RESNET = ["--model", "resnet18-cifar", "--data", "mock", "--image-size", "32", "--batch-size", "8", "--max-steps", "4"]
WAYS = {
    "serial, Adam": TOY,
    "serial, SGD, momentum, smoothing": [*NET, "--opt", "sgd", "--lr", "0.05", "--smoothing", "0.1"],
    "serial, AdamW, cosine, warm-up, clipping": [
        *NET, "--opt", "adamw", "--sched", "cosine", "--warmup-steps", "4", "--clip-grad", "1", "--epochs", "2"],
    "serial, averaged weights": [
        *TOY, "--model-ema", "--model-ema-decay", "0.9", "--eval-metric", "top1", "--val-interval", "1"],
    "serial, bf16": [*NET, "--precision", "bf16-mixed"],
    "serial, fp16": [*TOY, "--precision", "16-mixed", "--opt", "sgd"],
    "serial, accumulation": [*NET, "--grad-accum-steps", "2"],
    "serial, ResNet18": RESNET,
    "dp, 2 places": [*NET, "--parallel", "dp", "--places", "2"],
    "ddp, 2 ranks": [*NET, "--nproc-per-node", "2"],
    "ddp, 2 ranks over Gloo": [*NET, "--nproc-per-node", "2", "--backend", "gloo"],
    "ddp, 2 ranks, sharded optimizer": [*NET, "--nproc-per-node", "2", "--shard-optimizer"],
    "ddp, 2 places": [*NET, "--parallel", "ddp", "--places", "2"],
    "ddp, 2 ranks, SyncBatchNorm": [*RESNET, "--nproc-per-node", "2", "--sync-batch-norm"],
    "mp, 2 places": [*NET, "--parallel", "mp", "--places", "2", "--balance", "size"],
    "pp, 2 places, 1F1B": [*NET, "--parallel", "pp", "--places", "2", "--chunks", "4", "--balance", "size"],
    "pp, 2 places, GPipe, checkpoints": [
        *NET, "--parallel", "pp", "--places", "2", "--schedule", "gpipe", "--checkpoint", "always", "--balance", "size"],
    "pp, 2 ranks, zero-bubble": [
        *NET, "--parallel", "pp", "--nproc-per-node", "2", "--schedule", "zero-bubble", "--balance", "size"],
    "pp, 2 places, interleaved": [
        *NET, "--parallel", "pp", "--places", "2", "--schedule", "interleaved", "--balance", "size"],
    "ddp+pp, 4 ranks": [
        *NET, "--parallel", "ddp+pp", "--nproc-per-node", "4", "--stages", "2", "--balance", "size"],
    "ddp+mp, 4 ranks": [
        *NET, "--parallel", "ddp+mp", "--nproc-per-node", "4", "--stages", "2", "--balance", "size"],
}


def train(programs, flags, output):
    steps = [] if "--max-steps" in flags else ["--max-steps", str(STEPS)]
    command = [str(programs / "lockstep"), "train", *COMMON, *steps, *flags, "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        return None, f"exit code {done.returncode}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"
    summary = json.loads(done.stdout.strip().splitlines()[-1])
    return summary, summary["parameters_hash"]


def compare(name, flags, old, new, folder):
    _, before = train(old, flags, folder / "old")
    _, after = train(new, flags, folder / "new")
    # The old program goes half of the way, the new one the rest.
    if "--max-steps" not in flags:
        train(old, [*flags, "--max-steps", str(STEPS // 2)], folder / "both")
        summary, resumed = train(new, [*flags, "--resume", "auto"], folder / "both")
        if summary is not None and not summary["resumed_from"]:
            resumed += ", not resumed"
    else:
        resumed = before
    same = before == after == resumed
    print(f"{'same' if same else 'DIFFERENT':10} {name:42} {before}" + ("" if same else f"  new {after}  resumed {resumed}"), flush=True)
    return same


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, required=True, help="folder of the programs that were built before")
    parser.add_argument("--new", type=Path, default=ROOT / "build/release/bin")
    parser.add_argument("--only", default="", help="ways whose name has this word")
    arguments = parser.parse_args()
    verdicts = []
    for name, flags in WAYS.items():
        if arguments.only in name:
            with tempfile.TemporaryDirectory() as folder:
                verdicts.append(compare(name, flags, arguments.old, arguments.new, Path(folder)))
    print(f"{sum(verdicts)} of {len(verdicts)} ways give the same bits")
    return 0 if verdicts and all(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
