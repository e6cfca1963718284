#!/usr/bin/env python3
"""Fine-tunes VGG19 from weights of a file to 20 classes of images, and says how far that and a start from scratch come.

    python3 benchmarks/vgg_finetune.py --python VENV/bin/python

torchvision's weights need a network, so weights that have learnt something are made here: Lockstep trains vgg19-bn, which
learns quickly, on one synthesized folder of images; each batch norm is folded into the convolution before it, which gives
VGG19's own weights with the same outputs; torch.save writes them as torchvision's file. Then, on a folder drawn by another
seed, `lockstep train --model vgg19 --pretrained FILE --num-classes 20 --data images:DIR` trains a new last layer and the rest.
Needs a Python with torch and safetensors, and Lockstep built by ./dev build.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from commands import output_of

ROOT = Path(__file__).resolve().parent.parent
CLASSES = 20
VGG19 = ["--opt", "adam", "--lr", "0.0001"]  # the fifth study's rate of one device
# Runs in the Python that has torch: vgg19-bn's tensors become vgg19's. Convolutions and batch norms alternate in order.
FOLD = """
import re, sys, torch
from safetensors.torch import load_file
net = load_file(sys.argv[1])
number = lambda name: int(name.split(".")[1])
convs = sorted({number(n) for n in net if re.fullmatch(r"features\\.\\d+\\.weight", n) and net[n].dim() == 4})
pools, folded, place = {2, 4, 8, 12, 16}, {}, 0
for count, conv in enumerate(convs, 1):
    read = lambda layer, name: net[f"features.{layer}.{name}"].double()
    scale = read(conv + 1, "weight") / (read(conv + 1, "running_var") + 1e-5).sqrt()
    folded[f"features.{place}.weight"] = (read(conv, "weight") * scale.view(-1, 1, 1, 1)).float().contiguous()
    folded[f"features.{place}.bias"] = ((read(conv, "bias") - read(conv + 1, "running_mean")) * scale
                                        + read(conv + 1, "bias")).float()
    place += 3 if count in pools else 2
folded.update({n: t for n, t in net.items() if n.startswith("classifier.")})
torch.save(folded, sys.argv[2])
"""


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="a Python that can import torch and safetensors")
    parser.add_argument("--lockstep", default=str(ROOT / "build/release/bin/lockstep"))
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--train", type=int, default=2000, help="images of each folder to train with")
    parser.add_argument("--test", type=int, default=500)
    parser.add_argument("--pretrain-epochs", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=2, help="of fine-tuning, and of training from scratch beside it")
    return parser.parse_args()


def synthesize(arguments, folder, seed):
    output_of([arguments.lockstep, "data", "synthesize", "images", str(folder), "--classes", str(CLASSES),
               "--train", str(arguments.train), "--test", str(arguments.test), "--seed", str(seed)])


def train(arguments, name, model, data, run, epochs, flags):
    command = [arguments.lockstep, "train", "--model", model, "--data", f"images:{data}", "--num-classes", str(CLASSES)]
    command += ["--image-size", str(arguments.image_size), "--augment", "crop-flip", "--batch-size", "32"]
    command += ["--sched", "cosine", "--sched-on-updates", "--warmup-epochs", "1", "--clip-grad", "5"]
    command += ["--epochs", str(epochs), "--snapshot-interval", "never", "--progress", "none", "--json", "--output", str(run)]
    summary = json.loads(output_of(command + flags).strip().split("\n")[-1])
    accuracies = " ".join(f"{100 * epoch['val_accuracy']:.1f}" for epoch in summary["epochs"])
    print(f"{name:22} {model:9} accuracy after each epoch {accuracies} %", flush=True)


def main():
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        synthesize(arguments, folder / "first", 1)
        synthesize(arguments, folder / "second", 2)
        print(f"{arguments.train} images of {CLASSES} classes to train with, {arguments.test} to test with, seen at "
              f"{arguments.image_size} x {arguments.image_size}; load {os.getloadavg()[0]:.2f}", flush=True)
        train(arguments, "first folder", "vgg19-bn", folder / "first", folder / "pretrained", arguments.pretrain_epochs,
              ["--opt", "sgd", "--lr", "0.02"])
        weights = folder / "vgg19.pth"
        output_of([arguments.python, "-c", FOLD, str(folder / "pretrained/model.safetensors"), str(weights)])
        train(arguments, "second, fine-tuned", "vgg19", folder / "second", folder / "tuned", arguments.epochs,
              VGG19 + ["--pretrained", str(weights)])
        train(arguments, "second, from scratch", "vgg19", folder / "second", folder / "scratch", arguments.epochs, VGG19)


if __name__ == "__main__":
    main()
