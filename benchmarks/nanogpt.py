#!/usr/bin/env python3
"""Trains nanoGPT's recipe for CPUs by `lockstep train --model gpt2-nano` and by nanoGPT itself, in turn on the same text and cores.

    git clone https://github.com/karpathy/nanoGPT
    python3 -m venv peer && peer/bin/pip install torch==2.15.0 numpy
    benchmarks/nanogpt.py --nanogpt nanoGPT --peer-python peer/bin/python --text BOOK.txt [--seeds 3] [--json FILE]

Each trains on the first nine tenths of the text, by characters, for as many steps of 12 sequences of 64; then its loss over the whole last
tenth is taken. Bytes outside ASCII are left out for both. Lockstep is two ranks, or one, whichever is faster. nanoGPT runs on one thread and on two, compiled and
not, for 200 steps each, and trains at its fastest, without evaluations; it cannot give two ranks one batch. The time is that of all steps.
"""

import json
import os
import pickle
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from array import array
from pathlib import Path

from commands import ROOT, SharedTime, bold_ratio, output_of, parser_of, setting, with_range

sys.path.insert(0, str(ROOT / "benchmarks/peers"))
from ranks import MALLOC

LOSS = ROOT / "benchmarks/peers/nanogpt_loss.py"
STEPS = 2000
RECIPE = {"device": "cpu", "eval_iters": 1, "log_interval": 1, "block_size": 64, "batch_size": 12, "n_layer": 4, "n_head": 4, "n_embd": 128,
          "dropout": 0.0, "always_save_checkpoint": True}


def parse_arguments():
    parser = parser_of(__doc__)
    parser.add_argument("--nanogpt", required=True, metavar="DIR", help="a checkout of nanoGPT")
    parser.add_argument("--peer-python", required=True, help="a Python that can import torch 2.15 and numpy")
    parser.add_argument("--text", required=True, metavar="FILE")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE", help="write what was measured")
    return parser.parse_args()


def prepare(text, checkout, folder):
    """Writes both parts of the text as nanoGPT has it, and as we do; returns their characters and how many differ."""
    raw = Path(text).read_bytes()
    kept = bytes(byte for byte in raw if byte < 128)
    words = {byte: i for i, byte in enumerate(sorted(set(kept)))}
    cut = len(kept) * 9 // 10
    data = checkout / "data/book"
    data.mkdir()
    (data / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": len(words)}))
    for part, piece in (("train", kept[:cut]), ("val", kept[cut:])):
        (folder / f"{part}.txt").write_bytes(piece)
        (data / f"{part}.bin").write_bytes(array("H", (words[byte] for byte in piece)).tobytes())
    return len(kept), len(words)


def ours(arguments, folder, ranks, seed, steps=STEPS):
    """Trains; returns the seconds of all steps and the loss on the last tenth."""
    with tempfile.TemporaryDirectory() as run:
        command = [arguments.lockstep, "train", "--model", "gpt2-nano", "--data", f"text:{folder}", "--sequence-length", "64", "--seed", str(seed)]
        command += ["--nproc-per-node", str(ranks), "--batch-size", str(12 // ranks), "--opt", "adamw", "--lr", "1e-3", "--opt-betas", "0.9,0.99"]
        command += ["--opt-eps", "1e-8", "--weight-decay", "0.1", "--weight-decay-on", "weights", "--clip-grad", "1", "--sched", "cosine", "--min-lr", "1e-4"]
        command += ["--warmup-steps", "100", "--max-steps", str(steps), "--log-interval", "1", "--val-interval", "0"]
        command += ["--snapshot-interval", "never", "--progress", "none", "--output", f"{run}/run"]
        output_of(command)
        lines = [json.loads(line) for line in Path(f"{run}/run/metrics.jsonl").read_text().splitlines()]
        times = [line["step_ms"] / 1e3 for line in lines if line["split"] == "train" and line["rank"] == 0]
        return statistics.median(times) * steps, [line["loss"] for line in lines if line["split"] == "val"][-1]


def peer(arguments, checkout, flags, seed, steps=STEPS):
    """The same by nanoGPT with these flags."""
    threads, compiled = flags
    source = re.sub(r"manual_seed\(\d+", f"manual_seed({seed}", (checkout / "train.py").read_text())
    (checkout / "seeded.py").write_text(source)
    words = {**RECIPE, "dataset": "book", "compile": compiled, "max_iters": steps, "lr_decay_iters": steps, "eval_interval": steps, "out_dir": "out"}
    command = [arguments.peer_python, "seeded.py", "config/train_shakespeare_char.py", *(f"--{name}={value}" for name, value in words.items())]
    done = subprocess.run(command, cwd=checkout, env={**os.environ, **MALLOC, "OMP_NUM_THREADS": str(threads)}, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr[-3000:]}")
    times = [float(found) / 1e3 for found in re.findall(r"time ([\d.]+)ms", done.stdout)]
    loss = output_of([arguments.peer_python, str(LOSS), str(checkout), f"{checkout}/out", f"{checkout}/data/book/val.bin"])
    return statistics.median(times) * steps, float(loss.split("\n")[-2])


def fastest(run, choices):
    return min(choices, key=lambda choice: run(choice)[0])


def measure(arguments, folder):
    checkout = folder / "nanoGPT"
    shutil.copytree(arguments.nanogpt, checkout, ignore=shutil.ignore_patterns(".git"))
    characters, words = prepare(arguments.text, checkout, folder)
    ranks = fastest(lambda ranks: ours(arguments, folder, ranks, 1, 200), (1, 2))
    flags = fastest(lambda flags: peer(arguments, checkout, flags, 1, 200), [(threads, compiled) for threads in (1, 2) for compiled in (False, True)])
    own, others, busy = [], [], SharedTime()
    for seed in range(1, arguments.seeds + 1):
        own.append(ours(arguments, folder, ranks, seed))
        others.append(peer(arguments, checkout, flags, seed))
    found = {"characters": characters, "words": words, "ranks": ranks, "threads": flags[0], "compiled": flags[1], "others": busy.of_others()}
    return {**found, "lockstep": own, "nanogpt": others}


def main():
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(arguments, Path(folder))
    columns = {side: list(zip(*found[side])) for side in ("lockstep", "nanogpt")}
    print(setting("fp32", f"{STEPS} steps", f"{found['characters']:,} characters, {found['words']} different", f"{arguments.seeds} seeds") + "\n")
    print("| | seconds | loss on the last tenth |\n|---|---|---|")
    print(f"| Lockstep, {found['ranks']} ranks | {with_range(columns['lockstep'][0], '.1f')} | {with_range(columns['lockstep'][1], '.4f')} |")
    name = f"nanoGPT, {found['threads']} threads" + (", compiled" if found["compiled"] else "")
    print(f"| {name} | {with_range(columns['nanogpt'][0], '.1f')} | {with_range(columns['nanogpt'][1], '.4f')} |")
    print(f"\nnanoGPT's time over ours: {bold_ratio(columns['nanogpt'][0], columns['lockstep'][0])}; other programs {found['others']:.0%}")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"setting": setting("fp32"), **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
