#!/usr/bin/env python3
"""Predicts the tables of the five studies by `lockstep plan`, from one device's row and one figure of the link.

    python3 benchmarks/plan_studies.py

The studies ran on GPUs that nobody of us had: K80, V100, TITAN RTX, T4. For each a profile is written by hand: the layers of its
net with their shares of the arithmetic, scaled to what the study measured on one device. Prints prediction, the study's own figure
and the error of each other row. What the link is taken for stands beside it. PyTorch's DataParallel is planned by --peer pytorch-dp.
"""

import json
import tempfile
from pathlib import Path

from commands import last_json, output_of, parser_of

FAR = 1 << 20
# Seconds in which Python starts the kernels of one forward of ResNet50: its latency for one image on a V100, in NVIDIA's
# DeepLearningExamples of 2019. The backward pass needs as long, without Python but with twice the kernels.
START = 0.007


def convolution(inputs, outputs, kernel, side, norm=True):
    """Name, multiplications of a sample, bytes of each parameter, bytes of the output; `side` is that of the output."""
    parameters = [4 * inputs * outputs * kernel**2] + ([4 * outputs] * 2 if norm else [4 * outputs])
    return {"flops": 2 * inputs * outputs * kernel**2 * side**2, "parameters": parameters, "output": 4 * outputs * side**2}


def linear(inputs, outputs):
    return {"flops": 2 * inputs * outputs, "parameters": [4 * inputs * outputs, 4 * outputs], "output": 4 * outputs}


def joined(parts):
    """One layer of several that cannot be cut."""
    return {"flops": sum(part["flops"] for part in parts), "parameters": [size for part in parts for size in part["parameters"]],
            "output": parts[-1]["output"]}


def vgg19(classes):
    layers, inputs, side = [], 3, 224
    for outputs, count in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        for _ in range(count):
            layers.append(convolution(inputs, outputs, 3, side, norm=False))
            inputs = outputs
        side //= 2
    return layers + [linear(512 * 49, 4096), linear(4096, 4096), linear(4096, classes)]


def resnet18(classes):
    layers, inputs, side = [convolution(3, 64, 7, 112)], 64, 56
    for outputs in (64, 128, 256, 512):
        for block in range(2):
            parts = [convolution(inputs, outputs, 3, side), convolution(outputs, outputs, 3, side)]
            layers.append(joined(parts + ([convolution(inputs, outputs, 1, side)] if inputs != outputs else [])))
            inputs = outputs
        side //= 2
    return layers + [linear(512, classes)]


def resnet50(classes, image):
    layers, inputs, side = [convolution(3, 64, 7, image // 2)], 64, image // 4
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            parts = [convolution(inputs, width, 1, side), convolution(width, width, 3, side), convolution(width, 4 * width, 1, side)]
            layers.append(joined(([convolution(inputs, 4 * width, 1, side)] if block == 0 else []) + parts))
            inputs = 4 * width
        side //= 2
    return layers + [linear(2048, classes)]


def mnist_large():
    return [convolution(1, 128, 3, 28, False), convolution(128, 256, 3, 14, False), convolution(256, 512, 3, 7, False),
            linear(4608, 512), linear(512, 512), linear(512, 10)]


def mnist_small():
    return [convolution(1, 32, 3, 28, False), linear(6272, 64), linear(64, 10)]


def line(fixed, per_sample):
    return [{"batch": 1, "seconds": fixed + per_sample}, {"batch": FAR, "seconds": fixed + FAR * per_sample}]


def at_least(least, per_sample):
    """Seconds of a device: nothing below what starting the kernels takes."""
    even = least / per_sample
    if even <= 1:
        return line(0, per_sample)
    return [{"batch": 1, "seconds": least}, {"batch": even, "seconds": least}, {"batch": FAR, "seconds": FAR * per_sample}]


def profile_of(name, layers, seconds_a_sample, start=0.0, input_a_sample=0.0, rest=0.0, optimizer=0.0, copies=1):
    """A profile whose forward and backward take so long for a sample; `start`: of all kernels of one forward, or of one backward."""
    all_flops = sum(layer["flops"] for layer in layers)
    costs = []
    for index, layer in enumerate(layers):
        forward = seconds_a_sample / 3 * layer["flops"] / all_flops
        least = start / len(layers)
        costs.append({"name": f"layer {index}", "forward": at_least(least, forward), "backward": at_least(least, 2 * forward),
                      "backward_input": at_least(least, forward), "backward_weight": at_least(least, forward),
                      "activation_bytes": layer["output"], "output_bytes": layer["output"], "parameters": layer["parameters"]})
    return {"v": 3, "model": name, "precision": "32", "device": "of the study", "source": "benchmarks/plan_studies.py",
            "measured": False, "input": line(0, input_a_sample) if input_a_sample else [], "rest": line(rest, 0) if rest else [],
            "optimizer": optimizer, "state_copies": copies, "process_bytes": 0, "noise": 0, "flops": 3 * all_flops,
            "company": {"compute": [1], "memory": [1], "cores": 0, "crowded": 1},
            "within": None,
            "overheads": {"hand_over": [], "threads": [], "socket_core": 0, "gradient_core": 0, "replica_bytes": 0, "socket_bytes": 0}, "layers": costs}


class Planner:
    def __init__(self, lockstep, folder):
        self.lockstep, self.folder = lockstep, Path(folder)

    def choice(self, profile, *flags):
        file = self.folder / "profile.json"
        file.write_text(json.dumps(profile))
        command = [self.lockstep, "plan", "--profile", str(file), "--json", *map(str, flags)]
        return last_json(output_of(command))["choices"][0]

    def step_seconds(self, profile, *flags):
        return self.choice(profile, *flags)["step_seconds"]


def title(text):
    print(f"\n{text}\n{'':40}{'predicted':>10}{'the study':>11}{'error':>8}")


def row(name, predicted, published, unit="s"):
    print(f"  {name:38}{predicted:8.2f} {unit:1}{published:9.2f} {unit:1}{predicted / published - 1:+8.0%}")


def data_parallel(planner):
    """MNIST by DataParallel on K80s. One process reads the images, which takes nearly all of the small net's time: its three
    rows give the reading of an image and the fixed part of a step, the large net's rows its arithmetic."""
    images = 60000
    one = {"small": {128: 9.45, 256: 8.71, 512: 8.38}, "large": {128: 26.69, 256: 23.86, 512: 22.98}}
    two = {"small": {128: 8.29}, "large": {128: 19.97}}
    per_sample = {}
    fixed = {}
    for model, rows in one.items():
        steps = {batch: -(-images // batch) for batch in rows}
        fixed[model] = (rows[128] - rows[512]) / (steps[128] - steps[512])
        per_sample[model] = (rows[512] - fixed[model] * steps[512]) / images
    small_share = sum(layer["flops"] for layer in mnist_small()) / sum(layer["flops"] for layer in mnist_large())
    arithmetic = {"large": (per_sample["large"] - per_sample["small"]) / (1 - small_share)}
    arithmetic["small"] = arithmetic["large"] * small_share
    reading = per_sample["small"] - arithmetic["small"]
    title("data-parallel: second epoch of MNIST, DataParallel on two K80s; PCI express taken for 8 GB/s")
    for model, layers in (("small", mnist_small()), ("large", mnist_large())):
        profile = profile_of(model, layers, arithmetic[model], input_a_sample=reading, rest=fixed[model], copies=2)
        for batch, seconds in two[model].items():
            step = planner.step_seconds(profile, "--batch-a-place", "--batch", batch, "--places", 2, "--ways", "dp", "--within", "8GB,20us",
                                        "--peer", "pytorch-dp")
            row(f"{model} net, batches of {batch}", step * images / (2 * batch), seconds)


def throughput(planner):
    """ResNet50 by DataParallel on four V100s, from a batch that stays on the device. The row of the smaller batch tells for how long a
    replica's forward keeps Python's lock: its step is the longer the more there is of that; the other row follows."""
    serial, same, large = 0.003332657925784588, 0.003342693066224456, 0.0012320765294134618
    profile = profile_of("resnet50", resnet50(1000, 224), serial, start=START)
    flags = ("--places", 4, "--ways", "dp", "--within", "10GB,20us", "--peer")
    free = planner.choice(profile, "--batch", 128, *flags, "pytorch-dp,0.000001s")
    lock = (128 * same - free["step_seconds"] + free["forward_seconds"]) / 4
    title(f"throughput: how many times as fast a sample is on four V100s; links taken for 10 GB/s, and {1e3 * lock:.0f} ms for the lock")
    for batch, published in ((128, serial / same), (512, serial / large)):
        step = planner.step_seconds(profile, "--batch", batch, *flags, f"pytorch-dp,{lock}s")
        row(f"batches of {batch}" + (", which tell of the lock" if batch == 128 else ""), serial * batch / step, published, "x")


def ddp_scaling(planner):
    """ResNet18 on CIFAR-100 of 224 pixels by DDP on TITAN RTX."""
    one = 555.08
    samples = 10 * 50000
    profile = profile_of("resnet18", resnet18(100), one / samples, start=START, copies=2)
    title("ddp-scaling: ten epochs; PCI express taken for 10 GB/s, the network between the nodes for 1 Gbit/s")
    flags = ("--batch-a-place", "--batch", 128, "--ways", "ddp", "--within", "10GB,20us", "--link", "1Gbit,50us", "--places", 2)
    for nodes, name, published in ((1, "2 GPUs of one node", 302.0), (2, "4 GPUs of two nodes", 549.25)):
        step = planner.step_seconds(profile, *flags, "--nodes", nodes)
        row(name, step * samples / (256 * nodes), published)


def gigabits_for(efficiency, efficiency_at):
    """Returns the link's Gbit/s at which the efficiency is that."""
    least, most = 0.1, 100.0
    for _ in range(20):
        middle = (least * most) ** 0.5
        least, most = (middle, most) if efficiency_at(middle) < efficiency else (least, middle)
    return least


def scale_out(planner):
    """VGG19 on one T4 a node; the network of the instances is called "25 GB/s" and is "up to 25 Gbit/s". The row of two nodes tells its rate."""
    minutes, steps = 8.76, 650
    profile = profile_of("vgg19", vgg19(20), 60 * minutes / steps / 32, start=START)
    one = planner.step_seconds(profile, "--batch", 32, "--nodes", 1, "--places", 1, "--ways", "serial")

    def efficiency(nodes, gigabits):
        return one / planner.step_seconds(profile, "--batch-a-place", "--batch", 32, "--nodes", nodes, "--places", 1, "--ways", "ddp",
                                          "--link", f"{gigabits}Gbit,50us")

    rate = gigabits_for(0.81, lambda gigabits: efficiency(2, gigabits))
    title(f"scale-out: scaling efficiency on nodes of one T4; the network taken for {rate:.1f} Gbit/s")
    for nodes, published in ((2, 0.81), (4, 0.65), (8, 0.46)):
        row(f"{nodes} nodes" + (", which tell of the network" if nodes == 2 else ""), efficiency(nodes, rate), published, " ")


def pipeline(planner):
    """ResNet50 in two stages, batches of 120 images of 128 pixels: the study shows the split sizes as a curve only."""
    print("\npipeline: a step by split size, forwards first; the study's curve has its least between 12 and 20")
    profile = profile_of("resnet50", resnet50(1000, 128), 0.0033 * (128 / 224) ** 2, start=START)
    sizes = [1, 3, 5, 8, 10, 12, 20, 40, 60]
    seconds = {}
    for size in sizes:
        seconds[size] = planner.step_seconds(profile, "--batch", 120, "--places", 2, "--ways", "pp", "--schedule", "gpipe", "--chunks",
                                             120 // size, "--within", "10GB,20us")
    print("  " + "  ".join(f"{size}: {1e3 * seconds[size]:.0f} ms" for size in sizes))
    print(f"  the least is predicted at {min(sizes, key=seconds.get)}")


def main():
    arguments = parser_of(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        planner = Planner(arguments.lockstep, folder)
        for study in (data_parallel, throughput, ddp_scaling, scale_out, pipeline):
            study(planner)


if __name__ == "__main__":
    main()
