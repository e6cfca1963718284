"""The tensors of a model, to be exchanged or put back."""

from contextlib import contextmanager

import torch


def tensors_of(model):
    """Returns a model's parameters and buffers, each with the dict and the name that it has in its module."""
    stores = [store for part in model.modules() for store in (part._parameters, part._buffers)]
    return [(store, name, tensor) for store in stores for name, tensor in store.items() if tensor is not None]


@contextmanager
def unchanged(model, device):
    """Moves the model to the device, in training mode; afterwards it is where and as it was."""
    own = next(model.parameters()).device
    tensors = [(*each, each[-1].detach().to("cpu", copy=True)) for each in tensors_of(model)]
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    modes = {part: part.training for part in model.modules()}
    try:
        model.zero_grad()
        model.to(device)
        if not model.training:
            model.train()
        yield
    finally:
        model.zero_grad()
        with torch.no_grad():
            for store, name, tensor, value in tensors:
                store[name] = tensor
                if tensor.device == own:
                    tensor.copy_(value)
                else:  # also where it could not be moved back, as from the meta device
                    tensor.data = value.to(own)
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for part, mode in modes.items():
            part.training = mode
