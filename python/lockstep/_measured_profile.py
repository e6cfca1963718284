"""Profiles of models on a device that is there."""

from functools import partial

import torch

from lockstep import _place as place
from lockstep._count import count_step
from lockstep._fields import common, counted_layers, optimizer_of, state_bytes
from lockstep._measure import Trainer, check_names, median_of, noise_of, share_of, step_seconds
from lockstep._pair import measure_pair, ranks, refuse_pair
from lockstep._units import Segments, units_of

ROUNDS = 2  # of all batches, as machines drift
FEWEST, MOST = 3, 100  # steps of a batch in a round
DISTURBING = 0.05  # share of the cores


class Measuring:
    """One model on one device."""

    def __init__(self, model, whole, sample, units, optimizer, precision, device, say):
        self.model, self.sample, self.device = model, sample, device
        self.units = units_of(model, units)
        self.whole, self._say = whole, say
        self.optimizer = optimizer_of(model, optimizer)
        self.process_bytes = place.process_bytes(model, device)
        self.trainer_of = partial(Trainer, optimizer=self.optimizer, precision=precision, device=device)
        self.trainer = self.trainer_of(whole)
        self.batches, self.counts, self.steps, self.parts, self.peaks = {}, {}, {}, {}, {}  # by number of samples

    def run(self, sizes, seconds, may_leave_out):
        """Returns the fields of the profile; None on rank 1."""
        with torch.random.fork_rng(**place.generators(self.device)):
            load = place.Load()
            if ranks().rank == 0:
                try:
                    self._alone(sizes, seconds, may_leave_out)
                except Exception:
                    refuse_pair(self, sizes)  # or rank 1 would wait for the group's timeout
                    raise
            others = load.of_others()
            pair = measure_pair(self, sizes)
        return self._fields(others, pair) if ranks().rank == 0 else None

    def _alone(self, sizes, seconds, may_leave_out):
        for size in sizes:  # the cheapest first
            try:
                self._first(size)
            except Exception as error:
                if str(error).startswith("lockstep.profile:"):
                    raise
                if not may_leave_out or size == sizes[-1]:
                    raise RuntimeError(self._refusal(size, error)) from error
                self._say(f"{self._refusal(size, error)}; going on without")
                continue
            self._measure(size, seconds, [each for each in sizes if each > size] + sizes * (ROUNDS - 1))
        for again in range(1, ROUNDS):
            for number, size in enumerate(self.steps):
                later = list(self.steps)[number + 1:] + list(self.steps) * (ROUNDS - 1 - again)
                self._measure(size, seconds, later)

    def _refusal(self, size, error):
        made = "" if size == self.sample.count else f", made of the {self.sample.count} of the sample by slicing and repeating"
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        return f"lockstep.profile: {type(self.model).__name__} makes no step with {size} samples{made}: {reason}"

    def _first(self, size):
        """Counts what a step does. It is the first of its size, and warms up."""
        batch = self.batches[size] = self.sample.of(size)
        counts = count_step(partial(self.trainer.gradients, batch, model=self.model), partial(Segments, self.model, self.units), self.model)
        for known in self.counts.values():
            check_names([own.name for own in counts], [own.name for own in known])
        self.counts[size] = counts
        self.steps[size], self.parts[size] = [], []

    def _measure(self, size, seconds, later):
        """Adds steps of this size, about as many as fit into the time; `later` are the sizes that are measured after it."""
        batch, names = self.batches[size], [own.name for own in self.counts[size]]
        step = step_seconds(self.trainer.steps(batch, 2)[-1])
        count = min(max(round(seconds / step), FEWEST), MOST)
        place.reset_peak(self.device)
        self.steps[size] += self.trainer.steps(batch, count)
        self.peaks[size] = place.peak_bytes(self.device)
        self.parts[size] += self.trainer.segments(batch, max(2, count // 4), self.model, self.units, names)
        left = sum(1.3 * max(seconds, FEWEST * step * other / size) for other in later)
        self._say(f"{size} samples: {1e3 * step:.1f} ms a step" + (f"; about {left:.0f} s left" if later else ""))

    def _fields(self, others, pair):
        sizes = sorted(self.steps)
        if others is not None and others >= DISTURBING:
            self._say(f"others used {others:.0%} of the cores: a quiet machine gives better figures")
        every = [step for size in sizes for step in self.steps[size]]
        layers, fixed = counted_layers(sizes, self.counts)
        for number, layer in enumerate(layers):
            for phase in ("forward", "backward"):
                layer[phase] = self._curve(lambda size: median_of(self.steps[size], phase) * share_of(self.parts[size], phase, number))
        trained = sum(sum(layer["parameters"]) for layer in layers)
        copies = state_bytes(self.optimizer) / trained
        return {
            **common(layers),
            "device": place.name_of(self.device), "source": _source(self.device, sizes, self.optimizer, others, pair), "measured": True,
            "others": others,
            "rest": self._curve(lambda size: median_of(self.steps[size], "rest")),
            "optimizer": median_of(every, "optimizer"), "state_copies": copies,
            "process_bytes": self.process_bytes + fixed + self._unexplained(layers, (2 + copies) * trained + fixed),
            "noise": noise_of(self.steps.values()),
            "company": {"compute": [1.0, *pair.compute], "memory": [1.0, *pair.memory], "cores": max(place.places(self.device), ranks().size), "crowded": 1.0},
            "within": pair.within, "layers": layers}

    def _curve(self, seconds_at):
        return [{"batch": size, "seconds": seconds_at(size)} for size in sorted(self.steps)]

    def _unexplained(self, layers, known):
        """Returns the bytes that the largest batch needs on an accelerator beside what is known and saved."""
        size = max(self.steps)
        saved = size * sum(layer["activation_bytes"] for layer in layers)
        return max(0.0, self.peaks[size] - known - saved)


def _source(device, sizes, optimizer, others, pair):
    batches = ", ".join(map(str, sizes))
    text = f"lockstep.profile of PyTorch {torch.__version__} on {device.type}, batches of {batches}, {type(optimizer).__name__}; {pair.source}"
    return text if others is None else f"{text}; others used {others:.0%} of the cores"
