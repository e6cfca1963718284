#!/usr/bin/env python3
"""Writes what torchvision's nets compute, for tests/nn/torchvision_test.cpp: models.py [FOLDER [NAME...]].

Made with PyTorch 2.15.0 and torchvision 0.29.2, in float64, 10 classes, 4 images of 3 x 64 x 64. Weights and images
come from a counter, so that C++ can make the same: see value(). One file a model; its lines:

    tensor NAME SHAPE SEED0_NORM SEED0_DOT AFTER_NORM AFTER_DOT   of the state dictionary, in its order
    logits MODE VALUE...                                          of evaluation, then of training

SEED0: the tensor as manual_seed(0) and torchvision's constructor leave it. AFTER: a parameter's gradient, or a buffer, after one
forward and backward in training, without dropout. NORM is the 2-norm; DOT the sum of the elements, each times value(dot, its index).
"""

import sys
from pathlib import Path

import numpy
import torch
import torchvision
from formulas import words

CLASSES = 10
# What stands for a tensor's place in the state dictionary where there is none.
IMAGES, SCORES, DOT = 1000, 1001, 1002


def value(tensor, count):
    """Returns `count` numbers evenly from [0, 1): SplitMix64 of the index and the tensor's place, 53 bits of it."""
    return (words(count, tensor << 40) >> numpy.uint64(11)).astype(numpy.float64) * 2.0**-53


def even(tensor, shape):
    """Returns values in [-1, 1)."""
    return torch.from_numpy(2 * value(tensor, int(numpy.prod(shape))) - 1).reshape(shape)


def filled(place, name, tensor):
    values = torch.from_numpy(value(place, tensor.numel())).reshape(tensor.shape)
    if name.endswith("num_batches_tracked"):
        return torch.zeros_like(tensor)
    if name.endswith("running_var") or (name.endswith("weight") and tensor.dim() == 1):
        return values + 0.5
    if tensor.dim() == 1:
        return values - 0.5
    fan_in = tensor.numel() // tensor.shape[0]
    return (2 * values - 1) * (6 / fan_in) ** 0.5


def sums(tensor):
    flat = tensor.detach().double().contiguous().flatten()
    return f"{flat.norm():.17e} {(flat @ torch.from_numpy(value(DOT, flat.numel()))):.17e}"


class CifarResNet(torchvision.models.ResNet):
    """Is resnet18 with the stem that is common for CIFAR. torchvision has none, so its SEED0 says nothing."""

    def __init__(self, **options):
        super().__init__(torchvision.models.resnet.BasicBlock, [2, 2, 2, 2], **options)
        self.conv1 = torch.nn.Conv2d(3, 64, kernel_size=3, padding=1, bias=False)
        self.maxpool = torch.nn.Identity()


MODELS = {
    "resnet18": torchvision.models.resnet18,
    "resnet18-cifar": CifarResNet,
    "resnet34": torchvision.models.resnet34,
    "resnet50": torchvision.models.resnet50,
}
for depth in (11, 13, 16, 19):
    MODELS[f"vgg{depth}"] = getattr(torchvision.models, f"vgg{depth}")
    MODELS[f"vgg{depth}-bn"] = getattr(torchvision.models, f"vgg{depth}_bn")


def seeded(name):
    torch.manual_seed(0)
    return MODELS[name](num_classes=CLASSES)


def after_training(net, images):
    """Returns the logits and, by name, the gradients and buffers after one step's forward and backward."""
    net.train()
    for module in net.modules():
        if isinstance(module, torch.nn.Dropout):
            module.eval()
    logits = net(images)
    (logits * even(SCORES, logits.shape)).sum().backward()
    return logits, {name: tensor.grad for name, tensor in net.named_parameters()} | dict(net.named_buffers())


def numbers(values):
    return " ".join(f"{value:.17e}" for value in values.detach().flatten().tolist())


def lines(name):
    net = seeded(name)
    at_start = {key: sums(tensor) for key, tensor in net.state_dict().items()}
    net.double()
    state = net.state_dict()
    net.load_state_dict({key: filled(place, key, tensor) for place, (key, tensor) in enumerate(state.items())})
    images = even(IMAGES, (4, 3, 64, 64))
    evaluated = net.eval()(images)
    trained, after = after_training(net, images)
    for key, tensor in net.state_dict().items():
        shape = "x".join(map(str, tensor.shape)) or "scalar"
        yield f"tensor {key} {shape} {at_start[key]} {sums(after[key])}"
    yield f"logits eval {numbers(evaluated)}"
    yield f"logits train {numbers(trained)}"


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent / "models")
    folder.mkdir(exist_ok=True)
    for name in sys.argv[2:] or MODELS:
        head = f"# tests/conformance/models.py, torch {torch.__version__}, torchvision {torchvision.__version__}"
        (folder / f"{name}.txt").write_text("\n".join([head, *lines(name)]) + "\n")


if __name__ == "__main__":
    main()
