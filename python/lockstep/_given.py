"""Checks of what is given to lockstep.export() and lockstep.profile(), the `who` of their messages."""

import torch


def pair_of(who, sample):
    """Returns the inputs and the targets of a sample."""
    if not isinstance(sample, (tuple, list)) or len(sample) != 2:
        given = f"{len(sample)} things" if isinstance(sample, (tuple, list)) else type(sample).__name__
        raise TypeError(f"{who}: with a loss, the sample is a pair of inputs and targets, not {given}")
    return sample


def tensors_of_side(who, kind, given):
    """Returns one side of a sample, a tensor or several, as a list."""
    tensors = list(given) if isinstance(given, (tuple, list)) else [given]
    for index, tensor in enumerate(tensors):
        if not isinstance(tensor, torch.Tensor):
            advice = "; give its tensors in the order of forward's parameters" if isinstance(tensor, dict) else ""
            raise TypeError(f"{who}: {kind} {index} of the sample is a {type(tensor).__name__}, not a tensor{advice}")
    return tensors


def count_of(who, tensors):
    """Returns how many samples there are."""
    counts = {tuple(tensor.shape[:1]) for tensor in tensors}
    if len(counts) != 1 or counts & {(), (0,)}:
        shapes = ", ".join(str(list(tensor.shape)) for tensor in tensors) or "no tensor"
        raise ValueError(f"{who}: the first size of each tensor is the number of samples, one or more: {shapes}")
    return counts.pop()[0]
