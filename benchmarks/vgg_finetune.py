#!/usr/bin/env python3
"""Fine-tunes VGG19 from a file of weights to 20 classes of images, and compares its accuracy with training from scratch.

    python3 benchmarks/vgg_finetune.py --python VENV/bin/python

Downloading torchvision's weights needs a network, so trained weights are made here. Lockstep trains vgg11-bn on a
synthesized folder of many small images. Each batch norm is folded into the convolution before it, and each block gets
identity convolutions until it has VGG19's number: the authors of VGG also began their deeper nets with the layers of vgg11,
here the outputs stay the same as well. torch.save writes the result as torchvision's file, with an untrained last layer of
1,000 classes. Then, on a folder of fewer images of photographs' sizes, drawn with another seed, `lockstep train --model
vgg19 --pretrained FILE --num-classes 20 --data images:DIR` trains a new last layer and all others. Needs a
Python with torch and safetensors, and Lockstep built by ./dev build; --output keeps all files, and reuses those that exist.
"""

import json
import os
import tempfile
from pathlib import Path

from commands import output_of, parser_of

CLASSES = 20
# The classifier's two wide layers keep their initial weights: 120 million weights less to update.
VGG11 = ["--opt", "adam", "--lr", "0.0005", "--freeze", "classifier.0*,classifier.3*"]
VGG19 = ["--opt", "adam", "--lr", "0.00003"]
# Runs in the Python that has torch: turns vgg11-bn's tensors into vgg19's.
GROW = """
import sys, torch
from safetensors.torch import load_file
net = load_file(sys.argv[1])

def folded(conv):  # with the batch norm after it
    read = lambda layer, name: net[f"features.{layer}.{name}"].double()
    scale = read(conv + 1, "weight") / (read(conv + 1, "running_var") + 1e-5).sqrt()
    weight = read(conv, "weight") * scale.view(-1, 1, 1, 1)
    bias = (read(conv, "bias") - read(conv + 1, "running_mean")) * scale + read(conv + 1, "bias")
    return weight.float().contiguous(), bias.float()

def passing(channels):  # the identity: a ReLU's output is not negative, so the next ReLU does not change it
    return torch.nn.init.dirac_(torch.empty(channels, channels, 3, 3)), torch.zeros(channels)

grown = {n: t for n, t in net.items() if n.startswith(("classifier.0", "classifier.3"))}
grown["classifier.6.weight"], grown["classifier.6.bias"] = torch.randn(1000, 4096) * 0.01, torch.zeros(1000)  # ImageNet's
conv = place = 0  # among the layers of vgg11-bn, and of vgg19
for small, large in ((1, 2), (1, 2), (2, 4), (2, 4), (2, 4)):
    for layer in range(large):
        weight, bias = folded(conv) if layer < small else passing(len(bias))
        grown[f"features.{place}.weight"], grown[f"features.{place}.bias"] = weight, bias
        place += 2
        conv += 3 if layer < small else 0
    place, conv = place + 1, conv + 1  # the pooling
torch.save(grown, sys.argv[2])
"""


def parse_arguments():
    parser = parser_of(__doc__)
    parser.add_argument("--python", required=True, help="a Python that can import torch and safetensors")
    parser.add_argument("--output", help="a folder in which to keep all files")
    parser.add_argument("--image-size", type=int, default=32)
    parser.add_argument("--first-train", type=int, default=50000, help="small images to train vgg11-bn on")
    parser.add_argument("--first-epochs", type=int, default=2)
    parser.add_argument("--train", type=int, default=2000, help="images to fine-tune on")
    parser.add_argument("--test", type=int, default=500, help="test images in each folder")
    parser.add_argument("--epochs", type=int, default=4, help="of fine-tuning, and of training from scratch")
    return parser.parse_args()


def synthesize(arguments, folder, train, seed, flags=()):
    if not folder.exists():
        output_of([arguments.lockstep, "data", "synthesize", "images", str(folder), "--classes", str(CLASSES),
                   "--train", str(train), "--test", str(arguments.test), "--seed", str(seed), *flags])


def train(arguments, model, data, run, epochs, flags):
    if not (run / "summary.json").exists():
        command = [arguments.lockstep, "train", "--model", model, "--data", f"images:{data}", "--num-classes", str(CLASSES)]
        command += ["--image-size", str(arguments.image_size), "--batch-size", "32", "--clip-grad", "5"]
        command += ["--sched", "cosine", "--sched-on-updates", "--warmup-steps", "100", "--epochs", str(epochs)]
        command += ["--snapshot-interval", "never", "--progress", "none", "--output", str(run)]
        output_of(command + flags)
    return json.loads((run / "summary.json").read_text())


def show(name, model, summary):
    accuracies = " ".join(f"{100 * epoch['val_accuracy']:.1f}" for epoch in summary["epochs"])
    print(f"{name:22} {model:9} accuracy after each epoch {accuracies} %", flush=True)


def grow(arguments, run, weights):
    if not weights.exists():
        output_of([arguments.python, "-c", GROW, str(run / "model.safetensors"), str(weights)])


def measure(arguments, folder):
    print(f"{arguments.first_train} small images, then {arguments.train}, of {CLASSES} classes to train on, {arguments.test} "
          f"to test on, resized to {arguments.image_size} x {arguments.image_size}; load {os.getloadavg()[0]:.2f}", flush=True)
    first, second, weights = folder / "first", folder / "second", folder / "vgg19.pth"
    synthesize(arguments, first, arguments.first_train, 1, ["--size", "64x64"])
    synthesize(arguments, second, arguments.train, 2)
    show("first folder", "vgg11-bn", train(arguments, "vgg11-bn", first, folder / "pretrained", arguments.first_epochs, VGG11))
    grow(arguments, folder / "pretrained", weights)
    tuned = VGG19 + ["--pretrained", str(weights)]
    show("second, fine-tuned", "vgg19", train(arguments, "vgg19", second, folder / "tuned", arguments.epochs, tuned))
    show("second, from scratch", "vgg19", train(arguments, "vgg19", second, folder / "scratch", arguments.epochs, VGG19))


def main():
    arguments = parse_arguments()
    if arguments.output:
        return measure(arguments, Path(arguments.output))
    with tempfile.TemporaryDirectory() as folder:
        measure(arguments, Path(folder))


if __name__ == "__main__":
    main()
