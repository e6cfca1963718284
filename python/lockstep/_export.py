"""Models of Python as programs that train without it."""

import inspect
from types import SimpleNamespace

import torch

from lockstep._file import whole_file
from lockstep._given import count_of, pair_of, tensors_of_side

WHO = "lockstep.export"


def export(model, sample, path, *, loss=None):
    """Writes a module for `lockstep train --model PATH`: its weights, and two programs, of training and of evaluation.

    The training program is that of `model.train()`; of a model in training mode it is that of the model as it is, with the
    batch norms that you have frozen by `eval()`. The model stays as it was.

    Args:
        model: a torch.nn.Module. Of one that torch.compile() made, the original is exported.
        sample: a batch as `forward` takes it, a tensor or a tuple of tensors. The first dimension counts the samples: training
            may have any number of them, and keeps all other sizes. With `loss`, a pair of inputs and targets, each a tensor
            or a tuple of tensors, as a DataLoader gives it.
        path: the file to write, NAME.pt2. It is there whole or, after an error, as it was.
        loss: a function or module of what `forward` returns and of each target, for `--task program`. It returns the loss, a
            mean over the batch, or a dict with it as "loss" and other numbers, which are reported. Without, the targets in
            the data decide what is learned.

    Raises:
        TypeError: model, sample or loss is something else; the message says what was given.
        ValueError: the tensors of the sample do not begin with one number of samples, or the path does not end in .pt2.
        OSError: the file cannot be written.
        RuntimeError: torch.export cannot make a program of the model; the cause is its error.
    """
    model = getattr(model, "_orig_mod", model)
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"lockstep.export: the model is a {type(model).__name__}, not a torch.nn.Module")
    if not str(path).endswith(".pt2"):
        raise ValueError(f"lockstep.export: {path} must end in .pt2, by which lockstep train knows such a file")
    inputs, targets = (sample, ()) if loss is None else pair_of(WHO, sample)
    inputs, targets = tensors_of_side(WHO, "input", inputs), tensors_of_side(WHO, "target", targets)
    batch = _two_samples(inputs + targets)
    module = model if loss is None else _with_loss(model, loss, len(inputs), len(targets))
    with whole_file(WHO, path) as file:
        _write(file, _programs(module, batch))


def _programs(module, batch):
    modes = {part: part.training for part in module.modules()}
    try:
        if not module.training:
            module.train()
        programs = {"train": _program(module, batch, "training")}
        module.eval()
        programs["eval"] = _program(module, batch, "evaluation")
    finally:
        for part, mode in modes.items():
            part.training = mode
    return programs


def _write(file, programs):
    """Writes programs of one model as torch's package_pt2() does, but once what they share of its tensors."""
    from torch.export.pt2_archive import _package as pt2  # takes a second, which `import lockstep` need not wait

    kinds = (("state_dict", pt2._package_state_dict, pt2.WEIGHTS_CONFIG_FILENAME_FORMAT),
             ("constants", pt2._package_constants, pt2.CONSTANTS_CONFIG_FILENAME_FORMAT))
    written = {kind: {} for kind, *_ in kinds}
    with pt2.PT2ArchiveWriter(file) as archive:
        for name, program in programs.items():
            for kind, package, list_name in kinds:
                tensors, known = getattr(program, kind), written[kind]
                new = {key: tensor for key, tensor in tensors.items() if key not in known or known[key][0] is not tensor}
                payloads = package(name, SimpleNamespace(**{kind: new}), archive).config
                known.update({key: (new[key], payloads[key]) for key in new})
                config = pt2.schema.PayloadConfig(config={key: known[key][1] for key in tensors})
                pt2._package_payload_config(archive, config, list_name.format(name))
            parts = pt2.serialize(program, serialize_state_dict=False, serialize_constants=False)
            archive.write_bytes(pt2.MODELS_FILENAME_FORMAT.format(name), parts.exported_program)
            archive.write_bytes(pt2.SAMPLE_INPUTS_FILENAME_FORMAT.format(name), parts.example_inputs)


def _two_samples(tensors):
    """Returns the tensors with two samples: of one, torch.export would make a program for a single sample."""
    count_of(WHO, tensors)
    return tuple(tensor.detach()[[0, -1]] for tensor in tensors)


def _with_loss(model, loss, inputs, targets):
    """Returns a module that shares the model's parameters, under their names, and also computes the loss."""
    if not callable(loss):
        raise TypeError(f"lockstep.export: the loss is a {type(loss).__name__}, not a function or module")
    if model._forward_pre_hooks or model._forward_hooks or "forward" in vars(model):
        raise TypeError("lockstep.export: with a loss, hooks and a replaced forward of the model itself would see the targets, too; "
                        "export a module that calls the model")
    own = {id(parameter) for parameter in model.parameters()}
    trained = [name for name, parameter in _parameters_of(loss) if parameter.requires_grad and id(parameter) not in own]
    if trained:
        raise TypeError(f"lockstep.export: the loss has parameters to train, {', '.join(trained)}, which a program would keep as they are; "
                        "make it a part of the model")

    class WithLoss(type(model)):
        def forward(self, *tensors):
            result = loss(super().forward(*tensors[:inputs]), *tensors[inputs:])
            result = result if isinstance(result, dict) else {"loss": result}
            if not isinstance(result.get("loss"), torch.Tensor) or result["loss"].dim():
                raise TypeError("lockstep.export: the loss is neither a tensor without dimensions nor a dict with one as \"loss\"")
            return result

    # Training compares these names with those of the data.
    names = ["self", *_names(model.forward, 0, inputs, "input", {"self"})]
    names += _names(getattr(loss, "forward", loss), 1, targets, "target", set(names))
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    WithLoss.forward.__signature__ = inspect.Signature(parameters)
    WithLoss.__name__ = type(model).__name__
    module = WithLoss.__new__(WithLoss)  # not copy.copy(), which parametrized modules refuse
    vars(module).update(vars(model))
    return module


def _parameters_of(loss):
    return loss.named_parameters() if isinstance(loss, torch.nn.Module) else ()


def _names(function, skipped, count, otherwise, taken):
    """Returns the names of `count` parameters of the function; numbers where it does not name that many, or one that is taken."""
    try:
        named = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    except ValueError:  # a builtin
        named = []
    names = named[skipped:skipped + count]
    numbered = [f"{otherwise}_{index}" for index in range(count)]
    return [number if name in taken else name for name, number in zip(names, numbered)] if len(names) == count else numbered


def _program(module, batch, mode):
    samples = torch.export.Dim("samples", min=1)
    try:
        return torch.export.export(module, batch, dynamic_shapes=[{0: samples}] * len(batch))
    except Exception as error:
        reason = str(error).strip().splitlines()[:3]
        raise RuntimeError("\n".join([
            f"lockstep.export: torch.export makes no program of {type(module).__name__} in {mode} for any number of samples:",
            *reason])) from error
