"""The device and the machine that a profile is of."""

import os
import platform
import time

import torch

from lockstep._tensors import tensors_of

CONTEXT_BYTES = 0.6e9  # of an accelerator's, as the planner has it for devices that are not here


def generators(device):
    """Returns the arguments with which torch.random.fork_rng() keeps all that a step draws from."""
    return {"devices": []} if device.type == "cpu" else {"devices": [device], "device_type": device.type}


def process_bytes(model, device):
    """Returns the memory of a process before its first step, without the parameters that it trains and the copies of unchanged()."""
    if device.type != "cpu":
        return CONTEXT_BYTES
    try:
        with open("/proc/self/statm", encoding="ascii") as pages:
            resident = int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
    copied = sum(tensor.nbytes for _, _, tensor in tensors_of(model))
    return max(0, resident - copied - sum(parameter.nbytes for parameter in model.parameters() if parameter.requires_grad))


def reset_peak(device):
    """From now on peak_bytes() counts."""
    if device.type != "cpu":
        torch.accelerator.reset_peak_memory_stats(device)


def peak_bytes(device):
    """Returns the largest sum of what lay in an accelerator's memory at once; of a CPU, 0."""
    return 0 if device.type == "cpu" else torch.accelerator.max_memory_allocated(device)


def _cores():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def places(device):
    """Returns how many such places this machine has."""
    return max(1, _cores() // torch.get_num_threads()) if device.type == "cpu" else torch.accelerator.device_count()


def name_of(device):
    """Returns how a profile names it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type != "cpu":
        return device.type
    threads = torch.get_num_threads()
    return f"{_processor()}, {threads} {'core' if threads == 1 else 'cores'} a place"


def _processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as facts:
            return next(line.split(":", 1)[1].strip() for line in facts if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


class Load:
    """The share of the machine's cores that other programs use from now on; None where the system does not tell."""

    def __init__(self):
        self._busy, self._own, self._begin = _busy_seconds(), time.process_time(), time.monotonic()

    def of_others(self):
        if self._busy is None:
            return None
        others = _busy_seconds() - self._busy - (time.process_time() - self._own)
        return max(0.0, others) / ((time.monotonic() - self._begin) * os.cpu_count())


def _busy_seconds():
    """Returns the seconds that all cores have spent on anything but idling, as Linux counts them."""
    try:
        with open("/proc/stat", encoding="ascii") as stat:
            ticks = [int(word) for word in stat.readline().split()[1:]]
    except OSError:
        return None
    return (sum(ticks[:8]) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
