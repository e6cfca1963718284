"""Numbers by formula, which C++ repeats, and the files in which C++ reads what Python makes of them."""

import sys
from pathlib import Path

import numpy
import torch


def formula(count, start):
    return torch.sin(torch.arange(count, dtype=torch.float64) ** 2 * 0.37 + start)


def fill(net):
    """Gives every parameter its numbers."""
    with torch.no_grad():
        for place, parameter in enumerate(net.parameters()):
            parameter.copy_(formula(parameter.numel(), place).view_as(parameter) * 0.5)


def flat(tensors):
    """Returns the numbers of all tensors, one after the other."""
    return torch.cat([tensor.detach().double().flatten() for tensor in tensors]).tolist()


def words(count, start=0):
    """Returns `count` even words of 64 bits: SplitMix64 of the index."""
    x = numpy.arange(count, dtype=numpy.uint64) + numpy.uint64(start)
    x += numpy.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return x ^ (x >> numpy.uint64(31))


def show(rows, made_with=f"torch {torch.__version__}"):
    """Prints a file of numbers/, which expected_numbers() of tests/support reads: pairs of a name and its numbers."""
    script = Path(sys.argv[0]).name
    print(f"# Made by tests/conformance/{script} with {made_with}; do not edit. A line: name and values.")
    for name, values in rows:
        print(name, *values)
    sys.stdout.flush()
