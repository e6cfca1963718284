"""A batch of any size, made of one that was given."""

import inspect
from collections.abc import Mapping

import torch

from lockstep._given import count_of, pair_of, tensors_of_side

WHO = "lockstep.profile"


class Sample:
    """Tensors as a model and a loss take them, of as many samples as there are in what was given.

    Args:
        sample: a tensor, a tuple of tensors, or a dict of tensors by the names of forward's parameters; what is no tensor in a
            dict is passed as it is. With `loss`, a pair of such inputs and of targets.
        loss: a function of what the model returns and of each target, or None: the model returns the loss.
    """

    def __init__(self, sample, loss):
        inputs, targets = (sample, ()) if loss is None else pair_of(WHO, sample)
        self.loss = loss
        self.names = list(inputs) if isinstance(inputs, Mapping) else None
        self.inputs = list(inputs.values()) if self.names else tensors_of_side(WHO, "input", inputs)
        self.targets = tensors_of_side(WHO, "target", targets)
        self.count = count_of(WHO, [value for value in self.inputs + self.targets if isinstance(value, torch.Tensor)])

    def on(self, device):
        """Moves the tensors there; returns itself."""
        return self._each(lambda tensor: tensor.detach().to(device))

    def as_zeros(self):
        """Makes the tensors anew, as they are made now; returns itself."""
        return self._each(lambda tensor: torch.zeros(tensor.shape, dtype=tensor.dtype))

    def of(self, count):
        """Returns one of `count` samples: the first ones, and again from the first where there are no more."""
        resized = object.__new__(Sample)
        resized.__dict__ |= {**self.__dict__, "count": count}
        return resized._each(lambda tensor: torch.cat([tensor] * -(-count // self.count))[:count].clone())

    def loss_of(self, model):
        """Runs the model and returns the loss. Raises TypeError where there is none."""
        try:
            result = model(*self.inputs) if self.names is None else model(**dict(zip(self.names, self.inputs)))
        except TypeError:
            if self.loss is None and self.names is None:
                _check_takes(model, self.inputs)
            raise
        if self.loss is not None:
            result = self.loss(result, *self.targets)
        loss = result.get("loss") if isinstance(result, Mapping) else getattr(result, "loss", result)
        if not isinstance(loss, torch.Tensor) or loss.dim() > 0 or not loss.requires_grad:
            raise TypeError(f"lockstep.profile: {_what_is_wrong(result, loss, model, self.loss)}")
        return loss

    def _each(self, change):
        moved = [[change(each) if isinstance(each, torch.Tensor) else each for each in side] for side in (self.inputs, self.targets)]
        self.inputs, self.targets = moved
        return self


def _check_takes(model, inputs):
    """Raises TypeError if forward does not take so many tensors: perhaps the last are targets."""
    try:
        inspect.signature(model.forward).bind(*inputs)
    except ValueError:  # TorchScript's has no signature
        return
    except TypeError as error:
        raise TypeError(f"lockstep.profile: {type(model).__name__}.forward() cannot take the {len(inputs)} tensors of sample: {error}; if it is "
                        "(inputs, targets), pass loss=, a function of what the model returns and of the targets") from None


def _what_is_wrong(result, found, model, loss):
    """Says why what was found in a result is no loss to train with, and what to do."""
    source = type(model).__name__ if loss is None else f"the loss {getattr(loss, '__name__', type(loss).__name__)}"
    if isinstance(found, torch.Tensor) and found.dim() == 0:
        return f"what {source} returns has no gradient: no parameter is trained, or it was computed without autograd"
    given = f"a tensor of {list(result.shape)}" if isinstance(result, torch.Tensor) else f"a {type(result).__name__} without \"loss\""
    if loss is not None:
        return f"{source} returns {given}; it must be a tensor without dimensions, or a dict with one as \"loss\""
    return (f"{source} returns {given}, and no loss: pass loss=, a function of that and of the targets, with sample=(inputs, targets); "
            "or the targets that make the model compute one, as labels= of transformers")
