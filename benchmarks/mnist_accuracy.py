#!/usr/bin/env python3
"""Trains the small nets by Lockstep and by Python PyTorch with several seeds, and compares the accuracies they reach.

    python3 benchmarks/mnist_accuracy.py --peer-python VENV/bin/python
    python3 benchmarks/mnist_accuracy.py --peer-python VENV/bin/python --model large --train 12000 --epochs 2

Both train on the first images of Fashion-MNIST with 2 ranks, batch 128 per rank and Adam, and test on its 10,000 test images;
what the peer does is in peers/mnist_ddp.py. Prints the accuracy of each run, both means, and how far a mean may be off (its
standard error). Needs a Python with torch 2.15 and Lockstep built by ./dev build.
"""

import gzip
import os
import shutil
import statistics
import tempfile
from pathlib import Path

from commands import ROOT, cpu_model, last_json, output_of, parser_of, records_in



def parse_arguments():
    parser = parser_of(__doc__)
    parser.add_argument("--peer-python", required=True, help="a Python that can import torch 2.15")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist", help="the folder of the four files")
    parser.add_argument("--model", choices=["small", "large"], default="small")
    parser.add_argument("--train", type=int, default=60000, help="images to train on")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--precision", choices=["bf16-mixed", "32"], default="32")
    parser.add_argument("--seeds", default="1,2,3,4,5", help="one run of each for every seed, separated by commas")
    return parser.parse_args()


def keep_first(path, copy, header, bytes_each, count):
    """Copies the first `count` items of an IDX file, whose count is the second word of its header."""
    data = gzip.decompress(path.read_bytes())
    head = data[:4] + count.to_bytes(4, "big") + data[8:header]
    copy.write_bytes(gzip.compress(head + data[header:header + count * bytes_each], compresslevel=1))


def make_set(arguments, folder):
    source = Path(arguments.data)
    for name in ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"):
        shutil.copy(source / name, folder / name)
    for name, header, bytes_each in (("train-images-idx3-ubyte.gz", 16, 784), ("train-labels-idx1-ubyte.gz", 8, 1)):
        keep_first(source / name, folder / name, header, bytes_each, arguments.train)


def accuracy_of_lockstep(arguments, seed, data, run):
    command = [arguments.lockstep, "train", "--model", f"mnist-{arguments.model}", "--data", f"fashion-mnist:{data}"]
    command += ["--parallel", "ddp", "--nproc-per-node", "2", "--batch-size", "128", "--precision", arguments.precision]
    command += ["--epochs", str(arguments.epochs), "--seed", seed, "--progress", "none", "--json", "--output", run]
    last = last_json(output_of(command))["epochs"][-1]
    return last["samples"], last["val_accuracy"]


def accuracy_of_peer(arguments, seed, data):
    command = [arguments.peer_python, str(ROOT / "benchmarks/peers/mnist_ddp.py"), "--model", arguments.model]
    command += ["--epochs", str(arguments.epochs), "--precision", arguments.precision, "--seed", seed, "--data", str(data)]
    last = records_in(output_of(command))[-1]
    return last["samples"], last["test_accuracy"]


def check_samples(arguments, *counts):
    if any(count != arguments.train for count in counts):
        raise SystemExit(f"not the same work: {counts} samples an epoch instead of {arguments.train}")


def show(name, accuracies):
    error = statistics.stdev(accuracies) / len(accuracies) ** 0.5 if len(accuracies) > 1 else float("nan")
    print(f"{name:8}  mean {100 * statistics.mean(accuracies):.2f} % ({100 * min(accuracies):.2f} to {100 * max(accuracies):.2f}), "
          f"standard error {100 * error:.2f}")


def main():
    arguments = parse_arguments()
    print(f"{cpu_model()}; mnist-{arguments.model}, {arguments.train} images, {arguments.epochs} epochs, {arguments.precision}, "
          f"load {os.getloadavg()[0]:.2f}")
    ours, peers = [], []
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        data.mkdir()
        make_set(arguments, data)
        for seed in arguments.seeds.split(","):
            own, peer = accuracy_of_lockstep(arguments, seed, data, f"{folder}/run-{seed}"), accuracy_of_peer(arguments, seed, data)
            check_samples(arguments, own[0], peer[0])
            ours.append(own[1])
            peers.append(peer[1])
            print(f"seed {seed:4}  lockstep {100 * own[1]:.2f} %  pytorch {100 * peer[1]:.2f} %", flush=True)
    show("lockstep", ours)
    show("pytorch", peers)


if __name__ == "__main__":
    main()
