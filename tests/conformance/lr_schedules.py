#!/usr/bin/env python3
"""Makes tests/conformance/numbers/lr_schedules.txt with Python PyTorch: lr_schedules.py > numbers/lr_schedules.txt.

The rates that torch.optim.lr_scheduler gives the first, second, ... tick of a training with base rate 0.1: the short rows
(O5 to O8) and longer ones; and what ReduceLROnPlateau makes of losses and accuracies by formula.
"""

import math
import warnings

import torch
from torch.optim import lr_scheduler as sched

BASE = 0.1


def optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=BASE)


def rates(make, ticks):
    """Gives the rate used in each tick: the scheduler steps after it."""
    sgd = optimizer()
    scheduler = make(sgd)
    used = []
    for _ in range(ticks):
        used.append(sgd.param_groups[0]["lr"])
        sgd.step()
        scheduler.step()
    return used


def warmed_up(sgd, start, ticks, after):
    rise = sched.LinearLR(sgd, start_factor=start, end_factor=1.0, total_iters=ticks)
    return sched.SequentialLR(sgd, [rise, after], milestones=[ticks])


def plateau(values, **options):
    sgd = optimizer()
    scheduler = sched.ReduceLROnPlateau(sgd, **options)
    seen = []
    for value in values:
        scheduler.step(value)
        seen.append(sgd.param_groups[0]["lr"])
    return seen


def losses(count):
    """Falls, then only wavers, then falls a little again."""
    return [math.exp(-min(i, 8) / 4) + 0.01 * math.sin(i * i) - 0.002 * max(0, i - 30) for i in range(count)]


def schedules():
    short = {
        "StepShort": (lambda o: sched.StepLR(o, 2, gamma=0.5), 6),
        "MultistepShort": (lambda o: sched.MultiStepLR(o, [2, 5], gamma=0.1), 6),
        "ExponentialShort": (lambda o: sched.ExponentialLR(o, 0.9), 5),
        "LinearShort": (lambda o: sched.LinearLR(o, start_factor=0.25, total_iters=3), 5),
        "CosineShort": (lambda o: sched.CosineAnnealingLR(o, 4), 5),
        "WarmupCosineShort": (lambda o: warmed_up(o, 0.25, 2, sched.CosineAnnealingLR(o, 4)), 7),
        "OneCycleShort": (lambda o: sched.OneCycleLR(o, max_lr=1.0, total_steps=8), 8),
    }
    long = {
        "StepLong": (lambda o: sched.StepLR(o, 7, gamma=0.3), 60),
        "MultistepLong": (lambda o: sched.MultiStepLR(o, [3, 4, 20, 41], gamma=0.2), 60),
        "ExponentialLong": (lambda o: sched.ExponentialLR(o, 0.93), 60),
        "CosineLong": (lambda o: sched.CosineAnnealingLR(o, 50, eta_min=0.004), 51),
        "PolynomialLong": (lambda o: sched.PolynomialLR(o, total_iters=40, power=1.7), 60),
        "WarmupStepLong": (lambda o: warmed_up(o, 0.01, 11, sched.StepLR(o, 7, gamma=0.3)), 60),
        "WarmupPolynomialLong": (lambda o: warmed_up(o, 0.1, 5, sched.PolynomialLR(o, total_iters=40, power=0.5)), 60),
        "OneCycleLong": (
            lambda o: sched.OneCycleLR(o, max_lr=0.6, total_steps=57, pct_start=0.4, div_factor=10, final_div_factor=200),
            57),
    }
    return {name: rates(make, ticks) for name, (make, ticks) in {**short, **long}.items()}


def plateaus():
    falling = losses(60)
    return {
        "PlateauLosses": falling,
        "PlateauOfLosses": plateau(falling, factor=0.5, patience=3),
        "PlateauWithCooldown": plateau(falling, factor=0.1, patience=2, cooldown=4, min_lr=1e-4, threshold=0.02),
        "PlateauOfAccuracies": plateau([1 - loss for loss in falling], mode="max", factor=0.5, patience=1),
        "PlateauToNothing": plateau([1.0] * 40, factor=0.1, patience=0),
    }


def main():
    print(f"# Made by tests/conformance/lr_schedules.py with torch {torch.__version__}; do not edit. A line: name and values.")
    for name, values in {**schedules(), **plateaus()}.items():
        print(name, *[float(value) for value in values])


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
