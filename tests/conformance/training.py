#!/usr/bin/env python3
"""Makes tests/conformance/numbers/training.txt with Python: training.py > numbers/training.txt.

EMA: timm's ModelEmaV3 over a linear layer and a batch norm whose numbers change by formula, and its decays.
Smoothing: torch's cross_entropy with label_smoothing and its gradient. Decay groups: timm's param_groups_weight_decay.
"""

import timm
import torch
from timm.optim import param_groups_weight_decay
from timm.utils import ModelEmaV3

EMA_SETTINGS = {"": {"decay": 0.9}, "Warmup": {"decay": 0.9, "use_warmup": True}}


def formula(count, start):
    return torch.sin(torch.arange(count, dtype=torch.float64) ** 2 * 0.37 + start)


def small_net():
    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).double()
    fill(net, 0)
    return net


def fill(net, step):
    """Gives every number of the state its value of this step."""
    with torch.no_grad():
        for place, tensor in enumerate(net.state_dict().values()):
            if tensor.is_floating_point():
                tensor.copy_(formula(tensor.numel(), place + 0.1 * step).view_as(tensor))
            else:
                tensor.fill_(step)


def ema(settings):
    net = small_net()
    average = ModelEmaV3(net, **settings)
    for step in range(1, 7):
        fill(net, step)
        average.update(net, step=step)
    return torch.cat([tensor.double().flatten() for tensor in average.module.state_dict().values()])


def decays(settings):
    average = ModelEmaV3(small_net(), **settings)
    return [average.get_decay(step) for step in (1, 2, 3, 10, 31, 32, 33, 1000)]


def smoothed(smoothing):
    scores = (formula(15, 0.5) * 3).view(3, 5).requires_grad_()
    loss = torch.nn.functional.cross_entropy(scores.float(), torch.tensor([1, 4, 0]), label_smoothing=smoothing)
    loss.backward()
    return [loss.item()] + scores.grad.flatten().tolist()


def decay_groups():
    """Gives the numbers of elements of the parameters in timm's two groups, in order."""
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten(), torch.nn.Linear(16, 5))
    groups = param_groups_weight_decay(net, weight_decay=0.1)
    assert [group["weight_decay"] for group in groups] == [0.0, 0.1]
    return [[parameter.numel() for parameter in group["params"]] for group in groups]


def main():
    print(f"# Made by tests/conformance/training.py with torch {torch.__version__}, timm {timm.__version__}; do not edit. "
          "A line: name and values.")
    for name, settings in EMA_SETTINGS.items():
        print(f"Ema{name}", *ema(settings).tolist())
        print(f"EmaDecays{name}", *decays(settings))
    for name, smoothing in {"Smoothed": 0.1, "Unsmoothed": 0.0}.items():
        print(name, *smoothed(smoothing))
    without, with_decay = decay_groups()
    print("ElementsWithoutDecay", *without)
    print("ElementsWithDecay", *with_decay)


if __name__ == "__main__":
    main()
