#!/usr/bin/env python3
"""Prints the losses of the toy model in PyTorch, which tests/examples/examples_test.cpp expects.

Linear 10-10, ReLU, Linear 10-5; mean squared error, SGD of 0.001, batch 20, seed 0, all on one device. Made with torch 2.15.0.
"""

import torch


def main():
    print(f"# torch {torch.__version__}")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(10, 10), torch.nn.ReLU(), torch.nn.Linear(10, 5))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
    inputs, labels = torch.randn(20, 10), torch.randn(20, 5)
    for step in range(1, 4):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(inputs), labels)
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.6f}")


if __name__ == "__main__":
    main()
