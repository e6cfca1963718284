#!/usr/bin/env python3
"""Times an epoch of Lockstep and of Python PyTorch on the same work, in turn, and prints the ratio of medians.

    python3 benchmarks/mnist_epoch.py --peer-python VENV/bin/python          # mnist-small, 2 ranks, 3 pairs of runs
    python3 benchmarks/mnist_epoch.py --peer-python VENV/bin/python --model large --limit 6400 --epochs 2

Both train on Fashion-MNIST with 2 ranks, batch 128 per rank, bf16 autocast, Adam, one thread a rank, glibc's
malloc tuned; what the peer does is in peers/mnist_ddp.py. Needs a Python with torch 2.15 (pip install torch==2.15.0) and
Lockstep built by ./dev build. Each run's first epoch is printed separately and left out of the ratio: it includes start-up
costs. The share of the machine's CPU time that other programs used is printed beside each run.
"""

import os
import statistics
import sys
import tempfile

from commands import ROOT, SharedTime, cpu_model, last_json, output_of, parser_of, records_in


def parse_arguments():
    parser = parser_of(__doc__)
    parser.add_argument("--peer-python", required=True, help="a Python that can import torch 2.15")
    parser.add_argument("--model", choices=["small", "large"], default="small")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--limit", type=int, default=0, help="images an epoch; 0 is all 60,000")
    parser.add_argument("--peer-flags", default="", help="as one string, such as '--pin' or '--plain'")
    return parser.parse_args()


def run(command):
    """Runs a command; returns its stdout and the share of the machine that other programs used meanwhile."""
    shared = SharedTime()
    return output_of(command), shared.of_others()


def run_lockstep(arguments):
    with tempfile.TemporaryDirectory() as folder:
        command = [arguments.lockstep, "train", "--model", f"mnist-{arguments.model}", "--data", "fashion-mnist"]
        command += ["--parallel", "ddp", "--nproc-per-node", "2", "--batch-size", "128", "--precision", "bf16-mixed"]
        command += ["--epochs", str(arguments.epochs), "--progress", "none", "--json", "--output", f"{folder}/run"]
        if arguments.limit:
            command += ["--limit-train-batches", str(arguments.limit // 256)]
        output, others = run(command)
    summary = last_json(output)
    return {
        "seconds": [epoch["train_seconds"] for epoch in summary["epochs"]],
        "samples": summary["epochs"][0]["samples"],
        "accuracy": summary["test_accuracy"],
        "others": others,
    }


def run_peer(arguments):
    command = [arguments.peer_python, str(ROOT / "benchmarks/peers/mnist_ddp.py"), "--model", arguments.model]
    command += ["--epochs", str(arguments.epochs), *arguments.peer_flags.split()]
    if arguments.limit:
        command += ["--limit", str(arguments.limit)]
    output, others = run(command)
    epochs = records_in(output)
    accuracies = [epoch["test_accuracy"] for epoch in epochs if epoch.get("test_accuracy") is not None]
    return {
        "seconds": [epoch["seconds"] for epoch in epochs],
        "samples": epochs[0]["samples"],
        "accuracy": accuracies[-1],
        "others": others,
    }


def show(name, result):
    seconds = " ".join(f"{value:7.3f}" for value in result["seconds"])
    print(f"{name:8}  epochs {seconds} s   accuracy {result['accuracy']:.4f}   others {result['others']:5.1%}", flush=True)


def main():
    arguments = parse_arguments()
    print(f"{cpu_model()}, {os.cpu_count()} cores; mnist-{arguments.model}, {arguments.pairs} pairs, load {os.getloadavg()[0]:.2f}")
    ours, peers = [], []
    for _ in range(arguments.pairs):
        ours.append(run_lockstep(arguments))
        show("lockstep", ours[-1])
        peers.append(run_peer(arguments))
        show("pytorch", peers[-1])
    if ours[0]["samples"] != peers[0]["samples"]:
        sys.exit(f"not the same work: {ours[0]['samples']} and {peers[0]['samples']} samples an epoch")
    later = lambda results: [seconds for result in results for seconds in result["seconds"][1:]]
    own, peer, samples = later(ours), later(peers), ours[0]["samples"]
    pairs = [statistics.median(p["seconds"][1:]) / statistics.median(o["seconds"][1:]) for o, p in zip(ours, peers)]
    for name, seconds in (("lockstep", own), ("pytorch", peer)):
        median = statistics.median(seconds)
        print(f"{name:8}  median {median:.3f} s ({min(seconds):.3f} to {max(seconds):.3f}), {samples / median:,.0f} images/s")
    ratio = statistics.median(peer) / statistics.median(own)
    print(f"ratio of medians {ratio:.2f}; by pair {min(pairs):.2f} to {max(pairs):.2f}")


if __name__ == "__main__":
    main()
