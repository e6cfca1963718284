#!/usr/bin/env python3
"""Trains ResNet18 on a synthesized CIFAR-100 by Lockstep and by Python PyTorch, and compares the accuracies they reach.

    python3 benchmarks/cifar_accuracy.py --peer-python VENV/bin/python
    python3 benchmarks/cifar_accuracy.py --peer-python VENV/bin/python --augment timm --classes 100 --train 50000 --epochs 30

    python3 benchmarks/cifar_accuracy.py --peer-python VENV/bin/python --augment none --precision 32 --steps 20
    python3 benchmarks/cifar_accuracy.py --augment timm

Both train ResNet18 with the same augmentation, 2 ranks, SGD with momentum, a warm-up and a cosine, the
same set, batch, epochs and learning rate; what the peer does is in peers/cifar_resnet18.py. Needs a Python with torch,
torchvision, timm, numpy and Pillow below 13, and Lockstep built by ./dev build. Prints the accuracy of each run, the
difference of the means, and the seconds of an epoch (not a timing: other programs' load is included). With --steps both
begin with the peer's weights, and the loss of each step is compared: the same samples in the same order give the same
losses until rounding has grown. Without --peer-python only Lockstep trains.
"""

import os
import statistics
import sys
import tempfile
from pathlib import Path

from commands import ROOT, last_json, output_of, parser_of, records_in



def parse_arguments():
    parser = parser_of(__doc__)
    parser.add_argument("--peer-python", help="a Python that can import torch, torchvision and timm")
    parser.add_argument("--train", type=int, default=5000, help="training images")
    parser.add_argument("--test", type=int, default=2000, help="test images")
    parser.add_argument("--classes", type=int, default=10, help="of the 100 classes; more classes need more images")
    parser.add_argument("--model", choices=["resnet18-cifar", "resnet18"], default="resnet18-cifar",
                        help="resnet18 has the stem for large images and needs a fifteenth of the arithmetic")
    parser.add_argument("--augment", choices=["timm", "crop-flip", "none"], default="crop-flip",
                        help="timm's needs several times the epochs for the same accuracy")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32, help="per rank")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--precision", choices=["bf16-mixed", "32"], default="bf16-mixed",
                        help="32 is faster on a processor without bf16 instructions")
    parser.add_argument("--steps", type=int, help="compare the losses of this number of steps from the same weights, and end")
    parser.add_argument("--output", help="a folder in which to keep Lockstep's runs")
    parser.add_argument("--seeds", default="42", help="one run of each for every seed, separated by commas")
    arguments = parser.parse_args()
    if arguments.steps and not arguments.peer_python:
        parser.error("--steps compares with the peer's weights: needs --peer-python")
    return arguments


def keep_classes(path, classes):
    """Keeps in a file of CIFAR-100 the images whose fine label, the second byte, is below that."""
    data, length = path.read_bytes(), 3074
    records = (data[at:at + length] for at in range(0, len(data), length))
    path.write_bytes(b"".join(record for record in records if record[1] < classes))


def synthesize(arguments, data):
    """Draws more images than needed: the set draws its classes in turn, so the requested number is left."""
    counts = [str(count * 100 // arguments.classes) for count in (arguments.train, arguments.test)]
    output_of([arguments.lockstep, "data", "synthesize", "cifar100", data, "--train", counts[0], "--test", counts[1]])
    for name in ("train", "test"):
        keep_classes(Path(data) / "cifar-100-binary" / f"{name}.bin", arguments.classes)


def lockstep_command(arguments, data, seed, run):
    command = [arguments.lockstep, "train", "--model", arguments.model, "--data", f"cifar100:{data}"]
    command += ["--augment", arguments.augment]
    command += ["--nproc-per-node", "2", "--batch-size", str(arguments.batch_size), "--precision", arguments.precision]
    command += ["--opt", "sgd", "--lr", str(arguments.lr), "--weight-decay", "0.0005"]
    command += ["--sched", "cosine", "--sched-on-updates", "--warmup-epochs", "1", "--epochs", str(arguments.epochs), "--seed", str(seed)]
    return command + ["--progress", "none", "--json", "--output", run]


def peer_command(arguments, data, seed):
    command = [arguments.peer_python, str(ROOT / "benchmarks/peers/cifar_resnet18.py"), "--data", data]
    command += ["--model", arguments.model, "--batch-size", str(arguments.batch_size), "--lr", str(arguments.lr), "--seed", str(seed)]
    return command + ["--epochs", str(arguments.epochs), "--augment", arguments.augment, "--precision", arguments.precision]


def train_lockstep(arguments, data, seed, run):
    summary = last_json(output_of(lockstep_command(arguments, data, seed, run)))
    return [(epoch["val_accuracy"], epoch["train_loss"], epoch["train_seconds"]) for epoch in summary["epochs"]]


def train_peer(arguments, data, seed):
    epochs = records_in(output_of(peer_command(arguments, data, seed)))
    return [(epoch["test_accuracy"], epoch["train_loss"], epoch["seconds"]) for epoch in epochs]


def compare_steps(arguments, data, seed, folder):
    start, run = f"{folder}/start.pth", f"{folder}/steps"
    steps = ["--steps", str(arguments.steps), "--initial-weights", start]
    peer = [record["loss"] for record in records_in(output_of(peer_command(arguments, data, seed) + steps))]
    output_of(lockstep_command(arguments, data, seed, run)
              + ["--pretrained", start, "--max-steps", str(arguments.steps), "--log-interval", "1"])
    lines = records_in(Path(f"{run}/metrics.jsonl").read_text())
    own = [line["loss"] for line in lines if line["split"] == "train"]
    if len(own) != arguments.steps or len(peer) != arguments.steps:
        sys.exit(f"{len(own)} steps of Lockstep and {len(peer)} of PyTorch instead of {arguments.steps}")
    for step, (one, other) in enumerate(zip(own, peer), 1):
        print(f"step {step:3}  lockstep {one:.6f}  pytorch {other:.6f}  relative difference {abs(one - other) / other:.1e}")


def show(name, seed, epochs):
    accuracies = " ".join(f"{100 * accuracy:5.1f}" for accuracy, _, _ in epochs)
    seconds = statistics.median(seconds for _, _, seconds in epochs)
    print(f"{name:8}  seed {seed}  accuracy {accuracies} %   last loss {epochs[-1][1]:.4f}   epoch {seconds:.1f} s", flush=True)


def train_both(arguments, data, folder):
    """Returns the epochs of each run of Lockstep, and of the peer if there is one."""
    ours, peers = [], []
    for seed in arguments.seeds.split(","):
        ours.append(train_lockstep(arguments, data, seed, f"{arguments.output or folder}/run-{seed}"))
        show("lockstep", seed, ours[-1])
        if arguments.peer_python:
            peers.append(train_peer(arguments, data, seed))
            show("pytorch", seed, peers[-1])
    return ours, peers


def show_difference(ours, peers):
    own, peer = (100 * statistics.mean(epochs[-1][0] for epochs in runs) for runs in (ours, peers))
    print(f"last epoch: lockstep {own:.2f} %, pytorch {peer:.2f} %, difference {own - peer:+.2f} points")


def main():
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        data = f"{folder}/cifar100"
        synthesize(arguments, data)
        print(f"{arguments.train} images of {arguments.classes} classes to train on, {arguments.test} to test on; "
              f"load {os.getloadavg()[0]:.2f}", flush=True)
        if arguments.steps:
            return compare_steps(arguments, data, arguments.seeds.split(",")[0], folder)
        ours, peers = train_both(arguments, data, folder)
    if peers:
        show_difference(ours, peers)


if __name__ == "__main__":
    main()
