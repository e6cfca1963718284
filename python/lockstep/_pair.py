"""What two places of one machine cost each other."""

import statistics
from collections import namedtuple
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from lockstep._measure import Timeline, median_of, step_seconds

ROUNDS = 2
LATENCY = 20e-6  # seconds of a message between processes that share memory, as the planner has it where it is not measured
BUCKET = 25 << 20  # bytes
FAILED = -1  # instead of a number of steps

Ranks = namedtuple("Ranks", "rank, size")


@dataclass
class Pair:
    """Slowdowns of two places by each other, each none or one number, and the link between them: None where it is not known."""

    compute: list = field(default_factory=list)
    memory: list = field(default_factory=list)
    within: dict | None = None
    source: str = "one process"


def ranks():
    """Returns this process's rank and how many there are. Raises ValueError for more than two."""
    if not (dist.is_available() and dist.is_initialized()):
        return Ranks(0, 1)
    if dist.get_world_size() > 2:
        raise ValueError(f"lockstep.profile: is called by one process or by two, not by {dist.get_world_size()}")
    return Ranks(dist.get_rank(), dist.get_world_size())


def measure_pair(measuring, sizes):
    """Makes steps in both processes at once, each for itself and then by DistributedDataParallel.

    Rank 1 waits here while rank 0 measures alone. One process tells nothing, and rank 1 returns nothing.
    """
    if ranks().size == 1:
        return Pair()
    counts, has_unused = _agree([len(measuring.steps.get(size, ())) // ROUNDS for size in sizes], measuring)
    if counts[0] == FAILED:
        raise RuntimeError("lockstep.profile: rank 0 could not measure; it says why")
    both = measuring.trainer_of(DistributedDataParallel(measuring.whole, find_unused_parameters=has_unused))
    apart, joined = {}, {}
    for _ in range(ROUNDS):
        for size, count in zip(sizes, counts):
            if count == 0:  # left out
                continue
            batch = measuring.sample.of(size)
            for trainer, found in ((measuring.trainer, apart), (both, joined)):
                trainer.steps(batch, 2)
                dist.all_reduce(torch.zeros(1, device=measuring.device))  # begin together
                found.setdefault(size, []).extend(trainer.steps(batch, count))
    reduces = [] if measuring.device.type == "cpu" else [_reduce_seconds(measuring.device, elements) for elements in (1, BUCKET // 4)]
    return _pair_of(measuring, apart, joined, reduces) if ranks().rank == 0 else Pair()


def refuse_pair(measuring, sizes):
    """Ends measure_pair() of rank 1, as rank 0 could not measure."""
    if ranks().size == 2:
        _agree([FAILED] * len(sizes), measuring)


def _agree(counts, measuring):
    """Returns rank 0's numbers of steps, and whether it has parameters without a gradient, on both ranks."""
    unused = any(parameter.requires_grad and parameter.grad is None for parameter in measuring.model.parameters())
    numbers = torch.tensor([*counts, int(unused)], device=measuring.device)
    dist.broadcast(numbers, 0)
    *counts, unused = numbers.tolist()
    return counts, bool(unused)


def _pair_of(measuring, apart, joined, reduces):
    def slowed(seconds_of):
        return max(1.0, statistics.median(seconds_of(apart[size]) / seconds_of(measuring.steps[size]) for size in apart))

    exchange = statistics.median(_whole(joined[size]) - _whole(apart[size]) for size in apart)
    compute = slowed(lambda steps: median_of(steps, "forward") + median_of(steps, "backward"))
    return Pair([compute], [slowed(lambda steps: median_of(steps, "optimizer"))], _link(measuring, exchange, reduces),
                f"two processes, {dist.get_backend()}")


def _whole(steps):
    return statistics.median(map(step_seconds, steps))


def _link(measuring, exchange, reduces):
    """Returns the link between the places: what an exchange of all gradients adds to a step, where cores move the bytes.

    An accelerator computes meanwhile, so that no step tells; there it is what an all-reduce of a bucket takes.
    """
    gradients = sum(parameter.nbytes for parameter in measuring.model.parameters() if parameter.grad is not None)
    if measuring.device.type == "cpu":
        seconds = exchange - 2 * LATENCY
        return {"latency": LATENCY, "bytes_per_second": gradients / seconds if seconds > 0 else 0.0, "core_share": 1.0}
    short, long = reduces
    return {"latency": short / 2, "bytes_per_second": BUCKET / max(long - short, 1e-9), "core_share": 0.0}


def _reduce_seconds(device, elements, calls=10):
    tensor, line = torch.zeros(elements, device=device), Timeline(device)
    for call in range(2 * calls):
        if call == calls:  # the first ones connect
            line.mark("reduce")
        dist.all_reduce(tensor)
    line.mark(None)
    return line.spent()["reduce"] / calls
