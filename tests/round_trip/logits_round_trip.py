#!/usr/bin/env python3
"""Holds that weights cross between torchvision and Lockstep both ways, and that both then compute the same logits.

    LOCKSTEP_BINARY_DIR=build/release/bin python tests/round_trip/logits_round_trip.py

Python writes .pth and .safetensors, our program reads and computes; ours writes both, Python loads them strictly. The
logits agree within 1e-5 of their norm, the weights bit for bit. Needs torch, torchvision, safetensors.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import safetensors.torch
import torch
import torchvision

CLASSES = 7
TOLERANCE = 1e-5
MODELS = {"resnet18": "resnet18", "resnet50": "resnet50", "vgg11": "vgg11", "vgg11-bn": "vgg11_bn"}
BINARIES = pathlib.Path(os.environ.get("LOCKSTEP_BINARY_DIR", "build/release/bin"))


def formula_images():
    numbers = torch.arange(2 * 3 * 64 * 64, dtype=torch.int64) * 1103515245 % 2048
    return (numbers.to(torch.float32) / 1024 - 1).view(2, 3, 64, 64)


def fresh_net(model):
    """Makes a net whose running statistics are not those of the start."""
    torch.manual_seed(5)
    net = getattr(torchvision.models, MODELS[model])(num_classes=CLASSES)
    with torch.no_grad():
        net.train()(formula_images() * 2)
    return net


def logits_of(net):
    with torch.no_grad():
        return net.eval()(formula_images()).flatten()


def ours(model, *words):
    """Returns the logits that our program prints."""
    command = [BINARIES / "round_trip_logits", model, str(CLASSES), *map(str, words)]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {result.returncode}:\n{result.stderr}")
    return torch.tensor([float(line) for line in result.stdout.split()])


def write(net, path):
    if path.suffix == ".safetensors":
        safetensors.torch.save_file(net.state_dict(), path)
    else:
        torch.save(net.state_dict(), path)


def read(path):
    if path.suffix == ".safetensors":
        return safetensors.torch.load_file(path)
    return torch.load(path)  # weights_only=True is its default


def check_logits(what, found, expected):
    distance = ((found - expected).norm() / expected.norm()).item()
    print(f"{what}: {distance:.1e}", flush=True)
    if found.shape != expected.shape or not distance <= TOLERANCE:
        sys.exit(f"{what}: the logits differ by {distance}:\n{found}\n{expected}")


def check_state(what, found, expected):
    if list(found) != list(expected):
        sys.exit(f"{what}: other names or another order: {set(found) ^ set(expected)}")
    for name, tensor in expected.items():
        if found[name].dtype != tensor.dtype or not torch.equal(found[name], tensor):
            sys.exit(f"{what}: {name} differs")


def check_model(model, suffix, folder):
    net = fresh_net(model)
    theirs, back, made = (folder / f"{name}{suffix}" for name in ("theirs", "back", "made"))
    write(net, theirs)
    found = ours(model, "copy", theirs, back)
    check_logits(f"{model}{suffix} of Python, here", found, logits_of(net))
    # safetensors' own writer has an order of its own.
    state = net.state_dict()
    copied = read(back)
    check_state(f"{model}{suffix} and back", {name: copied[name] for name in state}, state)
    found = ours(model, "write", made)
    loaded = read(made)
    net.load_state_dict(loaded, strict=True)
    check_logits(f"{model}{suffix} of ours, in Python", found, logits_of(net))
    if suffix != ".safetensors":
        check_state(f"{model}{suffix} of ours", {name: loaded[name] for name in loaded}, net.state_dict())


def main():
    torch.set_num_threads(1)
    for model in MODELS:
        for suffix in (".pth", ".safetensors"):
            with tempfile.TemporaryDirectory() as folder:
                check_model(model, suffix, pathlib.Path(folder))
    # What Python's DDP writes, and half numbers.
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "ddp.pth"
        net = fresh_net("resnet18")
        torch.save({f"module.{name}": tensor for name, tensor in net.state_dict().items()}, path)
        check_logits("resnet18 of Python's DDP", ours("resnet18", "read", path), logits_of(net))
        torch.save(net.half().state_dict(), path)
        check_logits("resnet18 in float16", ours("resnet18", "read", path), logits_of(net.float()))


if __name__ == "__main__":
    main()
