"""The units of a model, and where among them a step is."""

from fnmatch import fnmatchcase

from torch import nn
from torch.utils._pytree import tree_leaves

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


def units_of(model, given=None):
    """Returns the modules that a model is cut at, by their names.

    Args:
        given: names of modules, or patterns of them, such as `transformer.h.*`, whose parts match parts between dots. Without,
            the children of the model, where lists and Sequentials are opened, and so are modules that hold a list of blocks;
            the blocks are units.

    Raises:
        ValueError: a pattern matches nothing, or a unit is within another.
    """
    modules = dict(model.named_modules())
    names = list(_opened(model, "")) if given is None else _matching(modules, [given] if isinstance(given, str) else given)
    for name in names:
        outer = next((other for other in names if name.startswith(f"{other}.")), None)
        if outer is not None:
            raise ValueError(f"lockstep.profile: the unit {name} is within the unit {outer}; leave out one of them")
    return {name: modules[name] for name in names if name in modules}  # a module in two places has the first one's name


def _opened(module, prefix):
    children = list(module.named_children())
    blocks = _blocks_of(module)
    for name, child in children:
        is_block = type(child) in blocks and not isinstance(child, CONTAINERS)
        if isinstance(child, CONTAINERS) or (not is_block and any(_blocks_of(part) for part in child.modules())):
            yield from _opened(child, f"{prefix}{name}.")
        else:
            yield prefix + name


def _blocks_of(module):
    """Returns the classes of which a list has at least two modules with parts of their own."""
    if not isinstance(module, CONTAINERS):
        return set()
    classes = [type(child) for child in module.children() if next(child.children(), None) is not None]
    return {each for each in classes if classes.count(each) > 1}


def _matching(modules, patterns):
    names = []
    for pattern in patterns:
        found = [name for name in modules if name and _matches(name.split("."), pattern.split("."))]
        if not found:
            known = ", ".join(name for name in modules if name and "." not in name)
            raise ValueError(f"lockstep.profile: no module is named {pattern!r}; the model has {known or 'no modules'}")
        names += found
    return list(dict.fromkeys(names))


def _matches(parts, patterns):
    return len(parts) == len(patterns) and all(map(fnmatchcase, parts, patterns))


class Segments:
    """Tells where a step is, while it is made within this context: in a segment of forward or of backward.

    A segment reaches from the start of a unit's call to that of the next one; the first begins with forward, and the last ends
    with the loss. In backward it begins with the first node that it has given to autograd, of those that units take and return.

    Args:
        model: whose modules are called.
        units: those that make segments, by name.
        reach: is called with a phase, "forward" or "backward", and the number of the segment that begins.
    """

    def __init__(self, model, units, reach):
        self.names = []  # of the segments of the last step
        self._units, self._reach = units, reach
        self._nodes, self._hooks = {}, []
        self._now, self._is_forward = 0, False
        self._whole = type(model).__name__

    def __enter__(self):
        for name, module in self._units.items():
            self._hooks.append(module.register_forward_pre_hook(self._begins(name), with_kwargs=True))
            self._hooks.append(module.register_forward_hook(self._ends))
        return self

    def __exit__(self, *_):
        for hook in self._hooks:
            hook.remove()
        self._nodes.clear()

    def forward(self):
        """A step begins, with forward."""
        self._nodes.clear()
        self.names, self._now, self._is_forward = [], 0, True
        self._reach("forward", 0)

    def backward(self):
        """Forward has ended."""
        self._is_forward = False
        self.names = self.names or [self._whole]
        self._now = len(self.names) - 1
        self._reach("backward", self._now)

    def _begins(self, name):
        def begin(module, inputs, keywords):
            if not self._is_forward:  # checkpoints call it again
                return
            self._watch((inputs, keywords))
            times = sum(each == name or each.startswith(f"{name} (") for each in self.names)
            self.names.append(f"{name} ({times + 1})" if times else name)
            self._now = len(self.names) - 1
            if self._now > 0:
                self._reach("forward", self._now)

        return begin

    def _ends(self, module, inputs, output):
        if self._is_forward:
            self._watch(output)

    def _watch(self, tensors):
        """What made these tensors belongs to the segment now, unless it was seen in an earlier one."""
        for tensor in tree_leaves(tensors):
            node = getattr(tensor, "grad_fn", None)
            if node is not None and node not in self._nodes:
                self._nodes[node] = self._now
                node.register_prehook(lambda _, segment=self._now: self._pass(segment))

    def _pass(self, segment):
        if segment < self._now:
            self._now = segment
            self._reach("backward", segment)
