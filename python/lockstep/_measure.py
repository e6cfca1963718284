"""Times of the phases of steps, and of a model's segments within them."""

import statistics
import time
from collections import defaultdict
from contextlib import nullcontext

import torch

from lockstep._units import Segments

PHASES = ("rest", "forward", "backward", "optimizer")


class Timeline:
    """Moments of a device: when it has come so far, and not when Python has asked for it."""

    def __init__(self, device):
        self._device, self._moments = device, []

    def mark(self, what):
        """From now on, `what` is done."""
        moment = time.perf_counter() if self._device.type == "cpu" else torch.Event(self._device, enable_timing=True)
        if self._device.type != "cpu":
            moment.record()
        self._moments.append((what, moment))

    def spent(self):
        """Waits for the device. Returns the seconds of each thing that was done; the last mark only ends."""
        if self._device.type != "cpu":
            torch.accelerator.synchronize(self._device)
        seconds = defaultdict(float)
        for (what, begin), (_, end) in zip(self._moments, self._moments[1:]):
            seconds[what] += end - begin if self._device.type == "cpu" else begin.elapsed_time(end) / 1e3
        return seconds


class Trainer:
    """Makes steps and times them.

    Args:
        whole: what is called: the model, what torch.compile() made of it, or DistributedDataParallel around it.
        optimizer: of its parameters.
        precision: "32", or "bf16-mixed" for autocast.
        device: where the parameters are.
    """

    def __init__(self, whole, optimizer, precision, device):
        self._whole, self.optimizer, self._device = whole, optimizer, device
        self._cast = torch.autocast(device.type, torch.bfloat16) if precision == "bf16-mixed" else nullcontext()

    def gradients(self, sample, segments, model=None):
        """Forward and backward alone, of the model that has those segments."""
        self.optimizer.zero_grad()
        segments.forward()
        with self._cast:
            loss = sample.loss_of(model or self._whole)
        segments.backward()
        loss.backward()

    def steps(self, sample, count):
        """Makes steps one after the other. Returns a list of the seconds of each phase of each of them."""
        line = Timeline(self._device)
        for step in range(count):
            line.mark((step, "rest"))
            self.optimizer.zero_grad()
            line.mark((step, "forward"))
            with self._cast:
                loss = sample.loss_of(self._whole)
            line.mark((step, "backward"))
            loss.backward()
            line.mark((step, "optimizer"))
            self.optimizer.step()
        line.mark(None)
        spent = line.spent()
        return [{phase: spent[step, phase] for phase in PHASES} for step in range(count)]

    def segments(self, sample, count, model, units, names):
        """Makes forward and backward so many times. Returns what each took of each segment: seconds by phase and number.

        Raises RuntimeError if the segments are not those of these names.
        """
        found = []
        for _ in range(count):
            line = Timeline(self._device)
            with Segments(model, units, lambda phase, segment, line=line: line.mark((phase, segment))) as segments:
                self.gradients(sample, segments, model)
            line.mark(None)
            check_names(segments.names, names)
            found.append(line.spent())
        return found


def check_names(found, expected):
    """Raises RuntimeError if a step has called other units than the ones before."""
    if found != expected:
        raise RuntimeError("lockstep.profile: the model calls other units from step to step; give units= that each step calls")


def step_seconds(step):
    return sum(step.values())


def median_of(steps, phase):
    return statistics.median(step[phase] for step in steps)


def share_of(parts, phase, number):
    """Returns a segment's share of a phase's time, of medians over some steps."""
    medians = {key: statistics.median(part[key] for part in parts) for key in parts[0] if key[0] == phase}
    return medians.get((phase, number), 0.0) / sum(medians.values())


def noise_of(batches):
    """Returns the relative standard deviation of equal steps, the median of several lists of steps; outliers do not count."""
    spreads = []
    for steps in batches:
        low, middle, high = statistics.quantiles(map(step_seconds, steps), n=4)
        spreads.append((high - low) / 1.349 / middle)
    return statistics.median(spreads)
