"""Profiles of models of Python, for `lockstep plan`."""

import json
import sys
from collections.abc import Collection
from pathlib import Path

import torch
from torch import nn

from lockstep._fields import VERSION
from lockstep._measured_profile import Measuring
from lockstep._sample import Sample
from lockstep._tensors import unchanged


def profile(model, sample, *, loss=None, batches=None, path="model.profile.json", device=None, units=None,
            optimizer=torch.optim.AdamW, precision="32", name=None, seconds=1.0):
    """Measures what training a model costs on one device, and writes a profile for `lockstep plan --profile PATH`.

    In each of two processes of one machine with torch.distributed initialised, both call it: then it also measures what they
    cost each other, DistributedDataParallel's exchange with it, and rank 0 writes. On CPUs a place has torch.get_num_threads()
    cores. A model on the meta device is counted, not measured: its layers take the time of their FLOP on a device of 1 TFLOP/s.
    Progress goes to stderr. The model stays as it was.

    Args:
        model: a torch.nn.Module in which all parameters are on one device. Of one that torch.compile() made, steps are timed as
            compiled, and shared among the units as the original's are.
        sample: a batch as `forward` takes it: a tensor, a tuple of tensors, or a dict of them by the names of forward's
            parameters. The first dimension counts the samples; other batches are made by slicing and repeating it. With
            `loss`, a pair of inputs and targets.
        loss: a function or module of what `forward` returns and of each target. It returns the loss, or a dict with it as
            "loss". Without, `forward` returns that.
        batches: numbers of samples to measure. Without, those of the sample, a half and a quarter, of at least 4; of these,
            ones that the model does not take are left out.
        path: the file to write.
        device: where to measure; without, where the model is. The model and the sample are moved there, and the model back.
        units: names of the modules that a pipeline may be cut at, or patterns such as `transformer.h.*`. Without, the children
            of the model, where lists and Sequentials are opened, and what holds a list of blocks is. A layer of the profile
            reaches from the start of a unit to that of the next one.
        optimizer: a class or function that makes one of parameters.
        precision: "32", or "bf16-mixed" for autocast.
        name: of the model; without, its class.
        seconds: about how long each batch is measured in each of two rounds; longer for long steps.

    Raises:
        TypeError: model, sample or loss is something else, or nothing returns a loss.
        ValueError: the sample has no first dimension of samples, units or batches are not those of the model.
        RuntimeError: the model does not take one of the batches, or calls other units from step to step.
    """
    whole, model = model, getattr(model, "_orig_mod", model)
    own = _device_of(model)
    if precision not in ("32", "bf16-mixed"):
        raise ValueError(f"lockstep.profile: the precision is 32 or bf16-mixed, not {precision}")
    if not Path(path).absolute().parent.is_dir():
        raise FileNotFoundError(f"lockstep.profile: there is no folder {Path(path).absolute().parent} for {path}")
    given = Sample(sample, loss)
    sizes, may_leave_out = _sizes(batches, given.count)
    about = {"model": name or type(model).__name__, "precision": _precision_of(model, precision)}
    if own.type == "meta":
        from lockstep._counted_profile import counted  # takes a second, which `import lockstep` need not wait

        fields = counted(model, given, sizes, units, optimizer, precision, _say)
    else:
        device = own if device is None else torch.device(device)
        if device.type == "meta":
            raise ValueError("lockstep.profile: nothing is measured on the meta device; a model that is made there is counted")
        with unchanged(model, device):
            measuring = Measuring(model, whole, given.on(device), units, optimizer, precision, device, _say)
            fields = measuring.run(sizes, seconds, may_leave_out)
    if fields is None:  # of another rank than 0
        return
    Path(path).write_text(json.dumps({"v": VERSION, **about, **fields}, indent=1) + "\n", encoding="utf-8")
    _say(f"wrote {path}, for lockstep plan --profile {path}")


def _device_of(model):
    if not isinstance(model, nn.Module):
        raise TypeError(f"lockstep.profile: the model is a {type(model).__name__}, not a torch.nn.Module")
    devices = {parameter.device for parameter in model.parameters()}
    if len(devices) != 1:
        found = " and ".join(sorted(map(str, devices))) or "none"
        raise ValueError(f"lockstep.profile: all parameters must be on one device, and they are on {found}")
    return devices.pop()


def _precision_of(model, precision):
    types = {str(parameter.dtype).removeprefix("torch.") for parameter in model.parameters()}
    return precision if types == {"float32"} else "+".join(sorted(types))


def _sizes(batches, given):
    """Returns the numbers of samples to measure, the least first, and whether one may be left out."""
    if batches is None:
        most = max(given, 4)
        return [most // 4, most // 2, most], True
    are_numbers = isinstance(batches, Collection) and all(type(size) is int and size > 0 for size in batches)
    if not are_numbers or not batches or len(set(batches)) < len(batches):
        raise ValueError(f"lockstep.profile: batches are different whole numbers from 1, such as [8, 16]: {batches}")
    return sorted(batches), False


def _say(line):
    print(line if line.startswith("lockstep.profile") else f"lockstep.profile: {line}", file=sys.stderr, flush=True)
