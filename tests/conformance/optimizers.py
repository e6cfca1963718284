#!/usr/bin/env python3
"""Makes numbers/optimizers.txt with Python PyTorch: optimizers.py > numbers/optimizers.txt.

The long runs of PyTorch's test/cpp/api/optim.cpp, for the optimizers that have a fused kernel: all parameters of a small
net at steps 0, 100, ..., 1000.
"""

import torch
from formulas import fill, flat, show

OPTIMIZERS = {
    "Sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "SgdMomentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "SgdMomentumDecay": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-2),
    "SgdNesterovDecay": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-6, nesterov=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=1.0),
    "AdamDecay": lambda p: torch.optim.Adam(p, lr=1.0, weight_decay=1e-2),
    "AdamAmsgradDecay": lambda p: torch.optim.Adam(p, lr=1.0, weight_decay=1e-6, amsgrad=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1.0),
    "AdamWNoDecay": lambda p: torch.optim.AdamW(p, lr=1.0, weight_decay=0),
    "AdamWAmsgrad": lambda p: torch.optim.AdamW(p, lr=1.0, amsgrad=True),
}


def long_run(make):
    """Gives all parameters after steps 0, 100, ..., 1000 of learning to make the outputs small."""
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Sigmoid(), torch.nn.Linear(3, 1), torch.nn.Sigmoid()).double()
    fill(net)
    optimizer = make(net.parameters())
    inputs = torch.arange(1, 7, dtype=torch.float64).view(3, 2) / 10
    seen = []
    for step in range(1001):
        optimizer.zero_grad()
        net(inputs).sum().backward()
        optimizer.step()
        if step % 100 == 0:
            seen += flat(net.parameters())
    return seen


if __name__ == "__main__":
    show((f"Long{name}", long_run(make)) for name, make in OPTIMIZERS.items())
