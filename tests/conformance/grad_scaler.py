#!/usr/bin/env python3
"""Makes numbers/grad_scaler.txt with Python PyTorch: grad_scaler.py > numbers/grad_scaler.txt.

Everything goes through torch.amp.GradScaler("cpu"): the scales and counters after each update, for gradients that are
finite or not, and a small training in which one step overflows. See the cases G1, G2, G5 to G8 in the test.
"""

import torch
from formulas import flat, show

INF = float("inf")


def sequence(found_inf, **options):
    """Returns scale and counter after each update, in turn; a gradient is infinite where found_inf has a 1."""
    parameter = torch.zeros(2, requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", **options)
    states = []
    for found in found_inf:
        scaler.scale(torch.ones(()))
        parameter.grad = torch.tensor([1.0, INF if found else 1.0])
        scaler.step(optimizer)
        scaler.update()
        states += [scaler.get_scale(), scaler._get_growth_tracker()]
    return states


def data():
    """Returns 4 batches of 3 rows of 8 and their targets, by a formula that C++ repeats."""
    numbers = torch.sin(torch.arange(4 * 2 * 3 * 8, dtype=torch.float64)).float()
    return numbers.view(4, 2, 3, 8).unbind()


def net():
    layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    for index, parameter in enumerate(layers.parameters()):
        numbers = torch.cos(torch.arange(parameter.numel(), dtype=torch.float64) + index)
        parameter.data.copy_(0.3 * numbers.float().view_as(parameter))
    return layers


def training(bad_step=None, clip=None, accumulate=1, enabled=True):
    """Returns the scales after each step, and the parameters after the last one."""
    layers = net()
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=128, growth_interval=1, enabled=enabled)
    scales = []
    for step, (batch, target) in enumerate(data()):
        loss = torch.nn.functional.mse_loss(layers(batch), target)
        scaler.scale(loss).backward()
        if step == bad_step:
            layers[1].weight.grad.fill_(INF)
        if (step + 1) % accumulate == 0:
            if clip is not None:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(layers.parameters(), clip)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            scales.append(scaler.get_scale())
    return scales, flat(layers.parameters())


def two_optimizers():
    """Returns the last scale, and how often each optimizer stepped, when one of them meets Inf in one step of four."""
    layers = net()
    steps = [0, 0]
    optimizers = [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in layers]
    for index, optimizer in enumerate(optimizers):
        optimizer.register_step_post_hook(lambda *_, index=index: steps.__setitem__(index, steps[index] + 1))
    scaler = torch.amp.GradScaler("cpu", init_scale=128, growth_interval=1)
    for step, (batch, target) in enumerate(data()):
        scaler.scale(torch.nn.functional.mse_loss(layers(batch), target)).backward()
        if step == 1:
            layers[1].weight.grad.fill_(INF)
        for optimizer in optimizers:
            scaler.step(optimizer)
            optimizer.zero_grad()
        scaler.update()
    return [scaler.get_scale(), *map(float, steps)]


def rows():
    yield "G1", sequence([0, 0, 1, 0, 0, 0, 1, 1], init_scale=4, backoff_factor=0.25, growth_interval=2)
    yield "G2", sequence([0, 0], init_scale=3e38, growth_interval=1)
    yield "Defaults", sequence([1, 0, 0, 1, 0])
    scales, parameters = training(bad_step=2)
    yield "G6Scales", scales
    yield "G6Parameters", parameters
    yield "G7ScaleAndSteps", two_optimizers()
    yield "G8Clipped", training(clip=0.2)[1]
    yield "G8Accumulated", training(accumulate=2)[1]


if __name__ == "__main__":
    show(rows())
