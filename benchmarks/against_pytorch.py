#!/usr/bin/env python3
"""Times training of each net in Lockstep and in Python PyTorch, in turn on the same cores, and prints the ratios of medians.

    python3 -m venv peer && peer/bin/pip install torch==2.15.0 torchvision timm "Pillow<13"
    benchmarks/against_pytorch.py --peer-python peer/bin/python
    benchmarks/against_pytorch.py --peer-python peer/bin/python --rows resnet18 vgg19 --precision bf16-mixed --rounds 5
    benchmarks/against_pytorch.py --peer-python peer/bin/python --device cuda --precision bf16-mixed

Lockstep is `lockstep train` on the images of `--data mock`, with as many ranks as the row says; the peer is peers/nets.py, with
malloc tuned, channels-last, fused Adam and gradients as bucket views. For each row the peer first runs every one of its settings
(two ranks of one thread or one of two, compiled or not) once, and goes on with the best. With `--device cuda` both train on one
GPU, with cuDNN's kernels chosen by time; the peer compiles with CUDA graphs. The roof is what both cores, or the GPU, do in a
large matrix product, and a share of it counts the arithmetic of direct convolutions; Winograd's form needs less, so a share may
be above 1.
"""

import os
import statistics
import time
from dataclasses import dataclass
from itertools import product

from commands import ROOT, SharedTime, bold_ratio, cpu_model, last_json, output_of, parser_of, records_in, training_rate



@dataclass
class Row:
    """The same work on both sides. A batch is that of all ranks together."""

    net: str
    image_size: int
    batch: int
    batches: int  # an epoch
    flags: str = ""  # of ours
    peer_flags: str = ""
    classes: int = 10
    ranks: int = 2  # of ours
    peer_ranks: tuple = (2, 1)  # of which the peer takes the best


PIPELINE = "--parallel pp --places 2 --chunks 8 --schedule zero-bubble"

ROWS = {
    "mnist-small": Row("mnist-small", 28, 256, 234),  # an epoch of Fashion-MNIST
    "mnist-large": Row("mnist-large", 28, 256, 6),
    "resnet18": Row("resnet18", 32, 256, 6),
    "resnet18-timm": Row("resnet18", 32, 256, 6, "--augment timm", "--augment timm"),
    "resnet18-cifar": Row("resnet18-cifar", 32, 256, 2),
    "resnet50": Row("resnet50", 224, 16, 3, ranks=1),  # all cores in one rank are faster here
    "vgg19": Row("vgg19", 224, 16, 2, classes=20),
    # A pipeline of two places in one process against the best single process.
    "resnet50-pipeline": Row("resnet50", 128, 120, 2, PIPELINE, classes=1000, ranks=1, peer_ranks=(1,)),
}

GPU = {"ranks": 1, "peer_ranks": (1,)}
GPU_ROWS = {
    "mnist-small": Row("mnist-small", 28, 256, 3000, **GPU),
    "mnist-large": Row("mnist-large", 28, 256, 500, **GPU),
    "resnet18": Row("resnet18", 32, 256, 200, **GPU),
    "resnet18-cifar": Row("resnet18-cifar", 32, 256, 100, **GPU),
    "resnet50": Row("resnet50", 224, 128, 40, classes=1000, **GPU),
    "vgg19": Row("vgg19", 224, 64, 40, classes=20, **GPU),
}


def parse_arguments():
    parser = parser_of(__doc__)
    parser.add_argument("--peer-python", required=True, help="a Python that can import torch 2.15, torchvision and timm")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rows", nargs="+", metavar="ROW", help=f"all of the device, unless given: {', '.join(ROWS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", choices=["32", "bf16-mixed"], default="32")
    parser.add_argument("--no-compile", action="store_true", help="leave out the peer's compiled settings, which take minutes each")
    arguments = parser.parse_args()
    arguments.known_rows = GPU_ROWS if arguments.device == "cuda" else ROWS
    for name in arguments.rows or []:
        if name not in arguments.known_rows:
            parser.error(f"--rows: {name} is no row of --device {arguments.device}: {', '.join(arguments.known_rows)}")
    return arguments


def ours(arguments, row):
    """Trains two epochs; returns the images a second of the second one."""
    command = [arguments.lockstep, "train", "--model", row.net, "--image-size", str(row.image_size)]
    command += ["--num-classes", str(row.classes), "--nproc-per-node", str(row.ranks), "--batch-size", str(row.batch // row.ranks)]
    command += ["--device", arguments.device, *(["--cudnn-benchmark"] if arguments.device == "cuda" else [])]
    command += ["--repeat", "20", "--limit-train-batches", str(row.batches), "--precision", arguments.precision, *row.flags.split()]
    return training_rate(command, row.batch * row.batches)


def peer(arguments, row, setting):
    """The same by the peer with a setting: ranks, threads of each, compiled or not."""
    ranks, threads, compiled = setting
    command = [arguments.peer_python, str(ROOT / "benchmarks/peers/nets.py"), "--net", row.net]
    command += ["--image-size", str(row.image_size), "--classes", str(row.classes), "--batch-size", str(row.batch // ranks)]
    command += ["--batches", str(row.batches), "--ranks", str(ranks), "--threads", str(threads)]
    command += ["--device", arguments.device, "--precision", arguments.precision]
    command += [*row.peer_flags.split(), *(["--compile"] if compiled else [])]
    record = records_in(output_of(command))[-1]
    return record["images_per_s"], record["flops_per_image"]


def best_setting(arguments, row):
    compiled = [False] if arguments.no_compile else [False, True]
    threads = 1 if arguments.device == "cuda" else os.cpu_count()
    speeds = {setting: peer(arguments, row, setting)[0] for setting in (
        (ranks, threads // ranks, choice) for ranks, choice in product(row.peer_ranks, compiled))}
    return max(speeds, key=speeds.get)


ROOF = """
import json, sys, time, torch
on_gpu = sys.argv[1] == "cuda"
torch.set_num_threads(2)
torch.set_default_device(sys.argv[1])
wait = torch.cuda.synchronize if on_gpu else lambda: None
def rate(call, work):
    rates = []
    for _ in range(7):
        wait(); start = time.perf_counter(); call(); wait()
        rates.append(work / (time.perf_counter() - start))
    return max(rates)
size = 8192 if on_gpu else 2048
a = torch.randn(size, size); h = a.bfloat16(); big = torch.randn(1 << (30 if on_gpu else 26)); other = torch.empty_like(big)
flops = 2 * size ** 3
name = torch.cuda.get_device_name() if on_gpu else ""
print(json.dumps([name, rate(lambda: a @ a, flops), rate(lambda: h @ h, flops), rate(lambda: other.copy_(big), 8 * big.numel())]))
"""


def machine(arguments):
    """Returns a GPU's name and the peaks of the device, by large products and a large copy in the peer's library."""
    return last_json(output_of([arguments.peer_python, "-c", ROOF, arguments.device]))


def measure(arguments, name, row, roof):
    setting = best_setting(arguments, row)
    own, others, busy = [], [], SharedTime()
    for _ in range(arguments.rounds):
        own.append(ours(arguments, row))
        speed, flops = peer(arguments, row, setting)
        others.append(speed)
    ours_median, peers_median = statistics.median(own), statistics.median(others)
    ranks, threads, compiled = setting
    print(f"| {name} | {ours_median:,.4g} ({ours_median * flops / roof:.2f}) | {peers_median:,.4g} ({peers_median * flops / roof:.2f}), "
          f"{ranks} x {threads}{', compiled' if compiled else ''} "
          f"| {bold_ratio(own, others)} | {busy.of_others():.0%} |", flush=True)


def main():
    arguments = parse_arguments()
    gpu, fp32, bf16, copied = machine(arguments)
    print(f"{gpu or cpu_model()}, {os.cpu_count()} cores, {fp32 / 1e9:.0f} GFLOP/s in fp32, {bf16 / 1e9:.0f} in bf16, "
          f"{copied / 1e9:.0f} GB/s copied; {arguments.precision}, {arguments.rounds} rounds, {time.strftime('%d %B %Y')}\n")
    print("| work | Lockstep, images/s (share of the roof) | PyTorch's best, ranks x threads | ratio (by round) | other programs |")
    print("|---|---|---|---|---|", flush=True)
    for name in arguments.rows or arguments.known_rows:
        measure(arguments, name, arguments.known_rows[name], fp32 if arguments.precision == "32" else bf16)


if __name__ == "__main__":
    main()
