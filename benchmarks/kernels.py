#!/usr/bin/env python3
"""Times training of whole nets with our kernels and with LibTorch's (oneDNN), in turn, and prints the ratio of medians.

    python3 benchmarks/kernels.py                                   # one rank on one core, CPU time
    python3 benchmarks/kernels.py --ranks 2 --nets resnet18-cifar

Both are `lockstep train` on the images of `--data mock`, in fp32 with Adam, and differ in --kernels only. One rank
has one thread, pinned, and its seconds are CPU time, so that other programs on a busy core are not counted; of several
ranks they are those of the clock. Each run's first steps are left out. Needs Lockstep built by ./dev build;
convolutions.cpp times the layers alone.
"""

import json
import os
import resource
import statistics
import tempfile
from pathlib import Path

from commands import cpu_model, output_of, parser_of, ratio_of

# Batch, image size, steps that are measured.
NETS = {
    "resnet18-cifar": (64, 32, 8),
    "resnet50": (16, 224, 4),
    "vgg19": (8, 224, 4),
}
FIRST_STEPS = 2


def parse_arguments():
    parser = parser_of(__doc__)
    parser.add_argument("--nets", nargs="+", choices=NETS, default=list(NETS))
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=1)
    return parser.parse_args()


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def train(arguments, net, kernels, steps):
    """Trains; returns the milliseconds of each step after the first ones, and the CPU seconds of the whole run."""
    batch, size, _ = NETS[net]
    before = cpu_seconds()
    with tempfile.TemporaryDirectory() as folder:
        command = [arguments.lockstep, "train", "--model", net, "--data", "mock", "--image-size", str(size)]
        command += ["--batch-size", str(batch), "--max-steps", str(steps), "--val-interval", "never"]
        command += ["--nproc-per-node", str(arguments.ranks), "--snapshot-interval", "never", "--log-interval", "1"]
        command += ["--kernels", kernels, "--output", f"{folder}/run", "--progress", "none"]
        output_of(command)
        lines = Path(folder, "run/metrics.jsonl").read_text().splitlines()
    milliseconds = [record["step_ms"] for record in map(json.loads, lines) if record.get("step_ms")]
    return milliseconds[FIRST_STEPS:], cpu_seconds() - before


def rate(arguments, net, kernels):
    """Returns images per second: by CPU time of one rank, by the clock of several."""
    batch, _, steps = NETS[net]
    if arguments.ranks == 1:
        short = train(arguments, net, kernels, FIRST_STEPS)[1]
        return batch * steps / (train(arguments, net, kernels, FIRST_STEPS + steps)[1] - short)
    milliseconds = train(arguments, net, kernels, FIRST_STEPS + steps)[0]
    return 1000 * batch * arguments.ranks / statistics.median(milliseconds)


def compare(arguments, net):
    rates = {"own": [], "libtorch": []}
    for _ in range(arguments.pairs):
        for kernels, values in rates.items():
            values.append(rate(arguments, net, kernels))
    for kernels, values in rates.items():
        print(f"{net:15} {kernels:8} {statistics.median(values):8.2f} images/s ({min(values):.2f} to {max(values):.2f})")
    ratio, least, most = ratio_of(rates["own"], rates["libtorch"])
    print(f"{net:15} ratio of medians {ratio:.2f}; by pair {least:.2f} to {most:.2f}", flush=True)


def main():
    arguments = parse_arguments()
    if arguments.ranks == 1:
        os.environ["OMP_NUM_THREADS"] = "1"
    clock = "CPU time of one thread" if arguments.ranks == 1 else "the clock"
    print(f"{cpu_model()}, {os.cpu_count()} cores; {arguments.ranks} ranks, by {clock}, load {os.getloadavg()[0]:.2f}")
    for net in arguments.nets:
        compare(arguments, net)


if __name__ == "__main__":
    main()
