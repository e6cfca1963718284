"""What a step computes and keeps, counted on the step itself."""

from contextlib import ExitStack
from dataclasses import dataclass, field

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode


@dataclass
class Counts:
    """Of one segment, for a whole batch."""

    name: str = ""
    forward: int = 0  # FLOP
    backward: int = 0
    products: int = 0  # of both, those in matrix products
    saved: int = 0  # bytes that forward keeps for backward
    passed: int = 0  # bytes that later segments use
    parameters: list = field(default_factory=list)  # bytes of each that is trained


def count_step(step, segments, model):
    """Makes a step, and returns the counts of each segment.

    What is saved are the storages that autograd keeps, each once and where it is kept first, but for those of parameters and
    buffers. What a segment passes on was made in it or before, and is used after it. A parameter belongs to the segment that
    uses it first.

    Args:
        step: makes forward and backward with the segments that it is given, and leaves the gradients.
        segments: makes segments that call the function that it is given.
    """
    own = {_key_of(tensor) for tensor in [*model.parameters(), *model.buffers()]}
    tally = _Tally(own)
    with ExitStack() as stack:
        counter = stack.enter_context(FlopCounterMode(display=False))
        stack.enter_context(tally)
        stack.enter_context(saved_tensors_hooks(tally.save, lambda tensor: tensor))
        found = stack.enter_context(segments(lambda phase, segment: tally.reach(phase, segment, *_flops(counter))))
        step(found)
        tally.reach(None, None, *_flops(counter))
    counts = tally.counts
    for own, name, passed in zip(counts, found.names, tally.passed(len(counts))):
        own.name, own.passed = name, passed
    for parameter in model.parameters():
        if parameter.grad is not None:
            counts[tally.first.get(_key_of(parameter), 0)].parameters.append(parameter.nbytes)
    return counts


class _Tally(TorchDispatchMode):
    """Follows the storages that the operations of forward make and use."""

    def __init__(self, own):
        super().__init__()
        self.counts, self.first = [], {}  # of each segment; by storage: the segment that uses it first
        self._own, self._saved = own, set()
        self._made, self._last = {}, {}  # by storage: the segment that makes it, with its bytes; the one that uses it last
        self._phase, self._segment, self._flops, self._products = None, None, 0, 0

    def reach(self, phase, segment, flops, products):
        if self._phase is not None:
            counts = self.counts[self._segment]
            setattr(counts, self._phase, getattr(counts, self._phase) + flops - self._flops)
            counts.products += products - self._products
        self._phase, self._segment, self._flops, self._products = phase, segment, flops, products
        if phase == "forward":
            self.counts.append(Counts())

    def save(self, tensor):
        """What autograd keeps of a tensor: no more than it would."""
        key = _key_of(tensor)
        if self._phase == "forward" and key is not None and key not in self._own and key not in self._saved:
            self._saved.add(key)
            self.counts[self._segment].saved += tensor.untyped_storage().nbytes()
        return tensor.detach()

    def passed(self, segments):
        """Returns the bytes that are used after each of so many segments and were made before its end."""
        crossing = [(made, self._last.get(key, made), size) for key, (made, size) in self._made.items()]
        return [sum(size for made, last, size in crossing if made <= segment < last) for segment in range(segments)]

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if self._phase != "forward":
            return result
        for key, _ in _storages((args, kwargs)):
            self.first.setdefault(key, self._segment)
            self._last[key] = self._segment
        for key, size in _storages(result):
            if key not in self.first:
                self._made.setdefault(key, (self._segment, size))
        return result


def _flops(counter):
    """Returns the FLOP so far, and those of them in matrix products: all but those of convolutions."""
    counted = counter.get_flop_counts().get("Global", {})
    return sum(counted.values()), sum(flops for operation, flops in counted.items() if "convolution" not in str(operation))


def _key_of(tensor):
    """Returns what tells a tensor's storage from others, also after it has gone; None for a tensor without, a sparse one."""
    try:
        return StorageWeakRef(tensor.untyped_storage())
    except (NotImplementedError, RuntimeError):
        return None


def _storages(tree):
    tensors = [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]
    keys = [(_key_of(tensor), tensor) for tensor in tensors]
    return [(key, tensor.untyped_storage().nbytes()) for key, tensor in keys if key is not None]
