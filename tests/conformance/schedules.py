#!/usr/bin/env python3
"""Writes the orders of PyTorch's pipeline schedules for tests/parallel/schedule: schedules.py [FOLDER].

The Python package torch makes the lists, without processes or stages; idle places are left out. `orders.csv` has a line
per rank: kind, ranks, stages, micro-batches, rank, actions. `transfers.csv` has, in the same form, the zero-bubble
schedule of 2 ranks with 2 stages each as PyTorch's runtime would lower it: neighbouring parts of a backward merged,
sends and receives added. These two hold what test/distributed/pipelining/artifacts/zb1p_2rank_2stagep_{compute,comms}.csv
of PyTorch's repository held when they were recorded; today's names of a backward's parts are I and W.
"""

import sys
from pathlib import Path

import torch
from torch.distributed.pipelining import schedules

# (ranks, stages per rank, micro-batches)
INTERLEAVED = [(2, 2, 2), (4, 2, 4), (2, 2, 8), (4, 2, 8), (4, 4, 8), (2, 3, 8), (4, 3, 12), (5, 4, 10), (4, 2, 3),
               (4, 2, 10), (4, 2, 15), (16, 4, 16)]
ZERO_BUBBLE = [(2, 2, 8), (4, 2, 8), (4, 1, 8), (4, 1, 3), (2, 1, 1), (3, 3, 9), (4, 2, 10)]


def order(schedule_class, ranks, stages_per_rank, micro_batches):
    """Returns the actions of each rank; the constructor would want real stages on a device."""
    schedule = schedule_class.__new__(schedule_class)
    schedule.pp_group_size = ranks
    schedule.n_local_stages = stages_per_rank
    schedule._n_microbatches = micro_batches
    schedule.number_of_rounds = max(1, micro_batches // ranks)
    schedule.microbatches_per_round = micro_batches // schedule.number_of_rounds
    return {rank: [action for action in schedule._calculate_single_rank_operations(rank) if action]
            for rank in range(ranks)}


def lines(kind, ranks, stages_per_rank, micro_batches, actions):
    for rank, of_rank in sorted(actions.items()):
        yield f"{kind},{ranks},{ranks * stages_per_rank},{micro_batches},{rank},{' '.join(map(str, of_rank))}\n"


def orders():
    for shape in INTERLEAVED:
        yield from lines("interleaved", *shape, order(schedules.ScheduleInterleaved1F1B, *shape))
    for shape in ZERO_BUBBLE:
        yield from lines("zero-bubble", *shape, order(schedules.ScheduleInterleavedZeroBubble, *shape))


def transfers():
    shape = ranks, stages_per_rank, _ = 2, 2, 8
    computed = order(schedules.ScheduleInterleavedZeroBubble, *shape)
    merged = {rank: schedules._merge_bw(list(actions)) for rank, actions in computed.items()}
    lowered = schedules._add_send_recv(merged, lambda stage: stage % ranks, ranks * stages_per_rank)
    yield from lines("zero-bubble", *shape, lowered)


def main(folder):
    for name, content in (("orders.csv", orders()), ("transfers.csv", transfers())):
        (folder / name).write_text(f"# Made by tests/conformance/schedules.py with torch {torch.__version__}\n"
                                   + "".join(content))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "schedules")
