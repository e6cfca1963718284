#!/usr/bin/env python3
"""Makes the archives beside this file with PyTorch 2.15: make_archives.py [FOLDER].

Stack traces hold the paths of this machine; all of them are shortened.
"""

import dataclasses
import os
import re
import sys
import typing

import torch
from torch.export import Dim, export
from torch.export.pt2_archive._package import package_pt2
from torch.utils import _pytree


class Conv(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 2, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(2)
        self.drop = torch.nn.Dropout(0.1)
        self.head = torch.nn.Linear(2, 3)

    def forward(self, x):
        h = torch.relu(self.norm(self.conv(x)))
        return self.head(self.drop(h.mean((2, 3))))


class Tied(torch.nn.Module):
    """An embedding that is the head's weight, too."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(8, 4)
        self.head = torch.nn.Linear(4, 8, bias=False)
        self.head.weight = self.embed.weight
        self.drop = torch.nn.Dropout(0.2)

    def forward(self, ids):
        h = self.drop(self.embed(ids))
        return {"logits": self.head(h), "hidden": (h,)}


class Modes(torch.nn.Module):
    """Graphs in the graph, sizes that vary, tensors that are no parameters."""

    def __init__(self):
        super().__init__()
        self.proj = torch.nn.Linear(4, 4, bias=False)
        self.register_buffer("places", torch.arange(4), persistent=False)

    def forward(self, x):
        with torch.no_grad():
            total = x.sum()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.proj(x)
        flat = y.reshape(x.shape[0] * x.shape[1] * 4)
        return flat, total + torch.tensor([1.0, 2.0]).sum()


class Language(torch.nn.Module):
    """Guesses the next byte at each of eight places."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(256, 4)
        self.head = torch.nn.Linear(4, 256)

    def forward(self, ids):
        return self.head(torch.nn.functional.gelu(self.embed(ids)))


class Skips(torch.nn.Module):
    """Blocks in a row that something passes by: a tensor, a size, and the weight of both ends."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(256, 4)
        self.blocks = torch.nn.Sequential(*[
            torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(inplace=True), torch.nn.Dropout(0.1),
                                torch.nn.Linear(16, 4)) for _ in range(3)])
        self.norm = torch.nn.BatchNorm1d(4)
        self.head = torch.nn.Linear(4, 256, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        length = ids.shape[1]
        first = self.embed(ids)
        return self.head(self.norm((self.blocks(first) + first).transpose(1, 2)).transpose(1, 2)) / length


class Fit(torch.nn.Module):
    """Computes its loss itself."""

    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(3, 1)

    def forward(self, x, y):
        error = self.line(x).squeeze(1) - y
        return {"loss": error.square().mean(), "absolute": error.abs().mean(), "errors": error}


class InPlace(torch.nn.Module):
    """Writes into its input, and by a view into what a convolution made."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 2, 3, padding=1)

    def forward(self, x):
        h = self.conv(x.mul_(2))
        h.view(-1, 32).relu_()
        return h


class Pair(typing.NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


@dataclasses.dataclass
class Result:
    x: torch.Tensor
    y: typing.Optional[torch.Tensor] = None
    z: typing.Optional[torch.Tensor] = None


class Nested(torch.nn.Module):
    """Arguments and results of every shape, and tensors that are not row-major."""

    def __init__(self):
        super().__init__()
        self.register_buffer("last", torch.arange(16.0).view(1, 2, 2, 4).to(memory_format=torch.channels_last))
        self.register_buffer("view", torch.arange(6.0).view(2, 3).t()[1:])

    def forward(self, batch, *rest, scale=2.0, **more):
        a, b = batch["x"].split(1, 1)
        c = torch.where(a > 0, float("inf"), b) * scale + rest[0]
        return Pair(a, c), Result(b, None, more["extra"] + self.view), {"n": None, 3: [self.last.sum()]}


def shorten_paths(program):
    """Makes `net.py` of this file's path, and leaves only what follows `lib/` of PyTorch's."""
    for module in program.graph_module.modules():
        for node in module.graph.nodes:
            if trace := node.meta.get("stack_trace"):
                trace = trace.replace(os.path.abspath(__file__), "net.py")
                node.meta["stack_trace"] = re.sub(r'"[^"]*/(?=site-packages/)', '"lib/', trace)
    return program


def main():
    os.chdir(sys.argv[1] if sys.argv[1:] else os.path.dirname(os.path.abspath(__file__)))
    torch.manual_seed(1)
    _pytree._register_namedtuple(Pair, serialized_type_name="net.Pair")
    torch.export.register_dataclass(Result, serialized_type_name="net.Result")
    batch, length = Dim("batch", min=1), Dim("length", min=2, max=64)

    conv = export(Conv().train(), (torch.randn(2, 1, 4, 4),), dynamic_shapes=({0: batch},))
    torch.export.save(shorten_paths(conv), "conv.pt2")

    tied, ids = Tied(), (torch.zeros(2, 3, dtype=torch.long),)
    programs = {mode: shorten_paths(export(tied.train(mode == "train"), ids)) for mode in ("train", "eval")}
    package_pt2("programs.pt2", exported_programs=programs)

    modes = export(Modes().train(), (torch.randn(3, 2, 4),), dynamic_shapes=({0: batch, 1: length},))
    torch.export.save(shorten_paths(modes), "modes.pt2")

    language = export(Language().train(), (torch.zeros(2, 8, dtype=torch.long),), dynamic_shapes=({0: batch},))
    torch.export.save(shorten_paths(language), "language.pt2")

    fit = export(Fit().train(), (torch.randn(2, 3), torch.randn(2)), dynamic_shapes=({0: batch}, {0: batch}))
    torch.export.save(shorten_paths(fit), "fit.pt2")

    nested = export(Nested(), ({"x": torch.randn(2, 2), "unused": torch.zeros(2)}, torch.zeros(2, 1)),
                    {"scale": 3.0, "extra": torch.zeros(1)})
    torch.export.save(shorten_paths(nested), "nested.pt2")

    skips = export(Skips().train(), (torch.zeros(2, 8, dtype=torch.long),), dynamic_shapes=({0: batch, 1: length},))
    torch.export.save(shorten_paths(skips), "skips.pt2")

    in_place = export(InPlace().train(), (torch.randn(2, 2, 4, 4),), dynamic_shapes=({0: batch},))
    torch.export.save(shorten_paths(in_place), "in_place.pt2")


if __name__ == "__main__":
    main()
