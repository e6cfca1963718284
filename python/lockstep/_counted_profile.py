"""Profiles of models that are too large for this machine: counted, and not measured."""

import copy
from functools import partial

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from lockstep._count import count_step
from lockstep._fields import common, counted_layers, optimizer_of, state_bytes
from lockstep._measure import Trainer
from lockstep._place import CONTEXT_BYTES
from lockstep._tensors import tensors_of
from lockstep._units import Segments, units_of

RATE = 1e12  # FLOP/s


def counted(model, given, sizes, units, optimizer, precision, say):
    """Returns the fields of a profile of a model on the meta device; nothing of it needs memory."""
    model, cpu = copy.deepcopy(model), torch.device("cpu")
    with FakeTensorMode(allow_non_fake_inputs=True):  # such as the weights of a loss
        _become_fake(model)
        modules = units_of(model, units)
        sample = given.as_zeros()
        made = optimizer_of(model, optimizer)
        trainer = Trainer(model, made, precision, cpu)
        counts = {}
        for size in sizes:
            batch = sample.of(size)
            counts[size] = count_step(partial(trainer.gradients, batch), partial(Segments, model, modules), model)
            say(f"{size} samples: {sum(own.forward + own.backward for own in counts[size]):.3g} FLOP a step")
        layers, fixed = counted_layers(sizes, counts)
        for layer, own in zip(layers, counts[sizes[-1]]):
            for phase in ("forward", "backward"):
                layer[phase] = [{"batch": sizes[-1], "seconds": getattr(own, phase) / RATE}]
    probe = nn.Parameter(torch.zeros(8, 8))
    probe.grad = torch.ones(8, 8)
    tried = optimizer([probe])
    tried.step()
    resting = sum({tensor: tensor.nbytes for _, _, tensor in tensors_of(model)}.values()) - sum(sum(layer["parameters"]) for layer in layers)
    return {**common(layers), "device": "a device of 1 TFLOP/s", "measured": False, "others": None,
            "source": f"counted by lockstep.profile of PyTorch {torch.__version__}", "rest": [], "optimizer": 0.0,
            "state_copies": state_bytes(tried) / probe.nbytes, "process_bytes": CONTEXT_BYTES + fixed + resting, "noise": 0.0,
            "company": {"compute": [1.0], "memory": [1.0], "cores": 0, "crowded": 1.0}, "within": None, "layers": layers}


def _become_fake(model):
    """Gives a model on the meta device tensors that claim to be on a CPU, whose kernels are then those that are counted."""
    made = {}  # one for each, also of a tied parameter
    for store, name, tensor in tensors_of(model):
        fake = torch.empty(tensor.shape, dtype=tensor.dtype)
        fake = nn.Parameter(fake, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else fake
        store[name] = made.setdefault(tensor, fake)
