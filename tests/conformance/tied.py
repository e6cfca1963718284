#!/usr/bin/env python3
"""Makes numbers/tied.txt with Python PyTorch: tied.py > numbers/tied.txt.

Nets with tied weights after five steps: every number of the parameters, each tensor once.
"""

import torch
from formulas import fill, flat, formula, show
from torch.nn import functional

OPTIMIZERS = {
    "Sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "SgdMomentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
}


class TwoNames(torch.nn.Module):
    """One tensor under two names."""

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.empty(4, 4))
        self.b = self.a

    def forward(self, x):
        return torch.tanh(x @ self.a) @ self.b


class Words(torch.nn.Module):
    """An embedding whose weight is that of the output layer."""

    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(7, 4)
        self.mix = torch.nn.Linear(4, 4)
        self.head = torch.nn.Linear(4, 7, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x):
        return self.head(torch.tanh(self.mix(self.words(x).mean(1))))


class OneLayerTwice(torch.nn.Module):
    """A module under two names."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.second = self.first

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))


class Chain(torch.nn.Sequential):
    """A chain of which one layer has a tied weight."""

    def __init__(self):
        super().__init__(TwoNames(), torch.nn.Tanh(), torch.nn.Linear(4, 4))


def batch(net):
    if isinstance(net, Words):
        return torch.arange(24).view(8, 3) * 5 % 7, torch.arange(8) * 3 % 7
    return formula(32, 0.5).view(8, 4), torch.arange(8) * 3 % 4


def trained(net, make):
    net.double()
    fill(net)
    optimizer = make(net.parameters())
    inputs, labels = batch(net)
    for _ in range(5):
        optimizer.zero_grad()
        functional.cross_entropy(net(inputs), labels).backward()
        optimizer.step()
    return flat(net.parameters())


if __name__ == "__main__":
    show((f"{net.__name__}{name}", trained(net(), make))
         for net in (TwoNames, Words, OneLayerTwice, Chain) for name, make in OPTIMIZERS.items())
