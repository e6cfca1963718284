#!/usr/bin/env python3
"""Compares the backend "lockstep" of Python's torch.distributed with Gloo: collectives of CPU tensors between processes of one host.

    PYTHONPATH=build/release/python benchmarks/python_backend.py [--ranks 2] [--bytes 65536 1048576 ...] [--json FILE]
    PYTHONPATH=build/release/python benchmarks/python_backend.py --end-to-end [--models mnist_cnn ...] [--json FILE]

Both groups are in the same processes and take turns. A sample is the mean of some calls that follow one another; each round has a sample
of Gloo, of lockstep with ordinary tensors, and of lockstep with tensors of allocate_tensor(), which all ranks see in place. Printed are
medians over the rounds of the time of a call, of the ratio of Gloo's to ours with its quartiles, and of the same ratio of the ranks' CPU
time, which other programs on the machine change less.

With --end-to-end whole training steps take turns in the same way: of models in DDP, and of GPT-2 small in FSDP2, which gets its buffers from
the group where that can be (lockstep). Each model is there twice, once a group, and both must have the same losses. It needs torchvision
and transformers, and takes about five minutes.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import lockstep.distributed  # noqa: F401
from peers.ranks import leave

CPU = torch.device("cpu")
COLLECTIVES = ["all_reduce", "reduce_scatter", "all_gather"]


def call_of(name, group, elements, make):
    """Returns a call of a collective, of which one rank's larger tensor has that many elements."""
    size = dist.get_world_size(group)
    whole = make(elements).fill_(1)
    part = make(elements // size).fill_(1)
    return {
        "all_reduce": lambda: dist.all_reduce(whole, group=group),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole, group=group),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part, group=group),
    }[name]


def sample(call, repeats):
    """Returns the seconds of a call, the slowest rank's, and its CPU seconds, of all ranks and threads."""
    dist.barrier()
    started, used = time.perf_counter(), time.process_time()
    for _ in range(repeats):
        call()
    spent = torch.tensor([time.perf_counter() - started, time.process_time() - used], dtype=torch.float64) / repeats
    dist.all_reduce(spent[:1], dist.ReduceOp.MAX)
    dist.all_reduce(spent[1:])
    return spent.tolist()


def calls_of(name, gloo, ours, elements):
    backend = ours._get_backend(CPU)
    plain = lambda count: torch.empty(count)  # noqa: E731
    shared = lambda count: backend.allocate_tensor(count, dtype=torch.float32, device=CPU)  # noqa: E731
    return {
        "gloo": call_of(name, gloo, elements, plain),
        "lockstep": call_of(name, ours, elements, plain),
        "in place": call_of(name, ours, elements, shared),
    }


def measure(sides, rounds, seconds):
    """Returns the samples of each way, round by round."""
    once = sample(sides["gloo"], 2)[0]
    repeats = max(1, min(200, int(seconds / rounds / once)))
    for call in sides.values():
        sample(call, 2)  # pages, connections
    samples = [{side: sample(call, repeats) for side, call in sides.items()} for _ in range(rounds)]
    return {side: [each[side] for each in samples] for side in sides}


def ratios_of(samples):
    """Returns Gloo's time of a call, and those of the other ways with their ratios."""
    gloo = samples["gloo"]
    row = {"gloo_ms": 1e3 * statistics.median(seconds for seconds, _ in gloo)}
    for side in samples.keys() - {"gloo"}:
        pairs = list(zip(gloo, samples[side]))
        low, middle, high = statistics.quantiles([theirs[0] / ours[0] for theirs, ours in pairs], n=4)
        row[side] = {
            "ms": 1e3 * statistics.median(seconds for seconds, _ in samples[side]),
            "ratio": middle,
            "quartiles": [low, high],
            "cpu_ratio": statistics.median(theirs[1] / ours[1] for theirs, ours in pairs),
        }
    return row


def numbers_of(row, side):
    return "  {ms:9.3f} {ratio:6.1f}x [{quartiles[0]:.1f}, {quartiles[1]:.1f}] {cpu_ratio:6.1f}x".format(**row[side])


def rows_of_collectives(groups, arguments):
    for name in arguments.collectives:
        for size_in_bytes in arguments.bytes:
            sides = calls_of(name, *groups, size_in_bytes // 4 // arguments.ranks * arguments.ranks)
            row = ratios_of(measure(sides, arguments.rounds, arguments.seconds or 2.0))
            line = f"{name:15}{size_in_bytes:10}  {row['gloo_ms']:9.3f}{numbers_of(row, 'lockstep')}{numbers_of(row, 'in place')}"
            yield line, {"collective": name, "bytes": size_in_bytes} | row


def mnist_cnn():
    layers = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10)), images(64, 1, 28)


def resnet18():
    from torchvision.models import resnet18

    return resnet18(num_classes=10), images(16, 3, 32)


def gpt2(layers, width, batch, length):
    from transformers import GPT2Config, GPT2LMHeadModel

    # Dropout draws from one generator for both sides.
    none = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
    model = GPT2LMHeadModel(GPT2Config(n_layer=layers, n_embd=width, n_head=width // 64, use_cache=False, **none))
    tokens = torch.randint(50257, (batch, length))
    return model, lambda model: model(input_ids=tokens, labels=tokens).loss


def images(batch, channels, width):
    """Returns what gives the loss of a classifier of some images."""
    inputs, labels = torch.randn(batch, channels, width, width), torch.randint(10, (batch,))
    return lambda model: nn.functional.cross_entropy(model(inputs), labels)


def replicated(model, group):
    return DistributedDataParallel(model, process_group=group)


def sharded(model, group):
    mesh = DeviceMesh.from_group(group, "cpu")
    parts = [*model.transformer.h, model]
    for part in parts:
        fully_shard(part, mesh=mesh)
        part.set_allocate_memory_from_process_group_for_comm(group._get_backend(CPU).supports_tensor_alloc(CPU))
    return model


MODELS = {
    "mnist_cnn": (mnist_cnn, replicated),
    "resnet18": (resnet18, replicated),
    "gpt2_6x384": (lambda: gpt2(6, 384, 2, 64), replicated),
    "gpt2_small_fsdp2": (lambda: gpt2(12, 768, 1, 64), sharded),
}


class Training:
    """One step of training a model, whose ranks have inputs of their own, at each call."""

    def __init__(self, name, group):
        make, distribute = MODELS[name]
        torch.manual_seed(1 + dist.get_rank())
        model, self.loss_of = make()
        for values in (*model.parameters(), *model.buffers()):
            dist.broadcast(values.data, 0)
        self.parameters = sum(values.numel() for values in model.parameters())
        self.model = distribute(model, group)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self.losses = []

    def __call__(self):
        loss = self.loss_of(self.model)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.losses.append(loss.item())


def rows_of_models(groups, arguments):
    for name in arguments.models:
        sides = {side: Training(name, group) for side, group in zip(("gloo", "lockstep"), groups)}
        row = ratios_of(measure(sides, arguments.rounds, arguments.seconds or 25.0))
        common = zip(sides["gloo"].losses, sides["lockstep"].losses)  # Gloo's has the steps that were timed first, too
        torch.testing.assert_close(*list(common)[-1], rtol=1e-3, atol=1e-4)
        rates = [1e3 / milliseconds for milliseconds in (row["gloo_ms"], row["lockstep"]["ms"])]
        megabytes = sides["gloo"].parameters * 4e-6
        line = f"{name:18}{megabytes:8.1f}  {rates[0]:9.2f}  {rates[1]:9.2f}{numbers_of(row, 'lockstep')}"
        yield line, {"model": name, "megabytes": megabytes, "gloo_steps_per_s": rates[0], "lockstep_steps_per_s": rates[1]} | row


NUMBERS = f"  {'lockstep':>9} {'ratio':>7} [quartiles] {'CPU':>6}"
COLLECTIVES_HEAD = f"{'collective':15}{'bytes':>10}  {'gloo ms':>9}{NUMBERS}{NUMBERS.replace('lockstep', 'in place')}"
MODELS_HEAD = f"{'model':18}{'MB':>8}  {'gloo/s':>9}  {'lockstep/s':>9}{NUMBERS.replace('lockstep', ' step ms')}"


def run_rank(rank, arguments, file):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=arguments.ranks)
    groups = (dist.group.WORLD, dist.new_group(list(range(arguments.ranks)), backend="lockstep"))
    rows = []
    if rank == 0:
        print(MODELS_HEAD if arguments.end_to_end else COLLECTIVES_HEAD, flush=True)
    for line, row in (rows_of_models if arguments.end_to_end else rows_of_collectives)(groups, arguments):
        rows.append(row)
        if rank == 0:
            print(line, flush=True)
    if rank == 0 and arguments.json:
        with open(arguments.json, "w") as out:
            json.dump({"torch": torch.__version__, "ranks": arguments.ranks, "cores": os.cpu_count(), "rows": rows}, out, indent=1)
    leave()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--bytes", type=int, nargs="+", default=[1 << 16, 1 << 20, 1 << 22, 25 << 20, 100 << 20])
    parser.add_argument("--collectives", nargs="+", default=COLLECTIVES, choices=COLLECTIVES)
    parser.add_argument("--end-to-end", action="store_true", help="train models")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, help="about how long Gloo's samples of a row take in all; 2, of a model 25")
    parser.add_argument("--json", help="a file for the figures")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run_rank, (arguments, f"{folder}/world"), nprocs=arguments.ranks)


if __name__ == "__main__":
    sys.exit(main())
