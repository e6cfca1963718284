#!/usr/bin/env python3
"""Makes numbers/ddp.txt with Python PyTorch: ddp.py > numbers/ddp.txt.

PowerSGD: three steps of powerSGD_hook on two ranks, with gradients by formula and a start Q from a seeded generator.
J1: the gradients of test_ddp_grad_div_uneven_inputs on two ranks.
"""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from formulas import show
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power_sgd

SHAPES = [(6, 4), (3,), (5, 7)]
SEED = 7


def gradient(step, rank, index):
    count = torch.Size(SHAPES[index]).numel()
    return torch.sin(torch.arange(count, dtype=torch.float64) ** 2 * (0.3 + 0.1 * index) + step + 2 * rank)


class Bucket:
    """Is what powerSGD_hook needs of a bucket."""

    def __init__(self, step, rank):
        self.memory = torch.cat([gradient(step, rank, index) for index in range(len(SHAPES))])

    def buffer(self):
        return self.memory

    def gradients(self):
        pieces = self.memory.split([torch.Size(shape).numel() for shape in SHAPES])
        return [piece.view(shape) for piece, shape in zip(pieces, SHAPES)]

    def index(self):
        return 0

    def is_last(self):
        return True


def run_power_sgd(rank, approximation, feedback):
    state = power_sgd.PowerSGDState(
        None, matrix_approximation_rank=approximation, start_powerSGD_iter=2, min_compression_rate=1,
        use_error_feedback=feedback)
    state.iter = 2
    generator = torch.Generator().manual_seed(SEED)
    matrices = [shape for shape in SHAPES if len(shape) == 2]
    state.q_memory_dict[0] = torch.cat(
        [torch.randn(m, approximation, generator=generator, dtype=torch.float64).flatten() for _, m in matrices])
    state.p_memory_dict[0] = torch.empty(sum(n for n, _ in matrices) * approximation, dtype=torch.float64)
    for step in range(3):
        bucket = Bucket(step, rank)
        result = power_sgd.powerSGD_hook(state, bucket).wait()
    return result


def run_uneven(rank, by_initial):
    model = torch.nn.Linear(5, 5, bias=False)
    net = torch.nn.parallel.DistributedDataParallel(model)
    seen = []
    with net.join(divide_by_initial_world_size=by_initial):
        for _ in range(3 if rank == 0 else 5):
            net(torch.full((1, 5), 50.0)).sum().backward()
            assert model.weight.grad.unique().numel() == 1
            seen.append(model.weight.grad[0, 0].item())
            net.zero_grad()
    return torch.tensor(seen)


def worker(rank, path):
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    results = []
    for approximation in (1, 2):
        for feedback in (True, False):
            name = f"PowerSgdRank{approximation}{'' if feedback else 'NoFeedback'}"
            results.append((name, run_power_sgd(rank, approximation, feedback)))
    results.append(("UnevenByInitial", run_uneven(rank, True)))
    results.append(("UnevenByActive", run_uneven(rank, False)))
    if rank == 1:
        show((name, values.tolist()) for name, values in results)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, args=(os.path.join(folder, "store"),), nprocs=2)
