#!/usr/bin/env python3
"""Compares what PyTorch builds on collectives over the backend "lockstep" with the same over Gloo and with a single process.

    PYTHONPATH=build/release/python tests/python/parallel_test.py [REGEX of names]

A test is a function of a folder that returns tensors by name: results over a mesh of four ranks on the CPU. All run in the same four
processes, first in a world of Gloo, then in one of ours, and both must return the same: the same bits where the values are whole numbers,
which each order of adding gives exactly, else equal up to the rounding of float64.
"""

import os
import sys
import traceback
from datetime import timedelta
from itertools import product

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

import lockstep.distributed  # noqa: F401
import processes

SIZE = 4
LIMIT = timedelta(seconds=300)
TESTS = []


def compared(test):
    TESTS.append(test)
    return test


def close(got, expected):
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)


class Transformer(nn.Module):
    """A small language model."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(17, 8)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(8, 2, 20, dropout=0, batch_first=True) for _ in range(2))
        self.head = nn.Linear(8, 17)

    def forward(self, tokens):
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def made_transformer():
    torch.manual_seed(3)
    return Transformer().double()


def sharded(mesh, **options):
    model = made_transformer()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def batch_of(step):
    """Returns the tokens of all ranks."""
    generator = torch.Generator().manual_seed(step)
    return torch.randint(17, (SIZE, 3, 6), generator=generator)


def loss_of(model, tokens):
    return nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1).double(), tokens[:, 1:].flatten())


def optimizer_of(model):
    return torch.optim.Adam(model.parameters(), lr=0.01)


def train(model, optimizer, tokens_of, steps=range(3)):
    """Trains; returns the losses of this process."""
    losses = []
    for step in steps:
        loss = loss_of(model, tokens_of(step))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses)


def train_here(model, optimizer, steps=range(3)):
    """Trains by the tokens of this rank; returns the mean losses of all."""
    losses = train(model, optimizer, lambda step: batch_of(step)[dist.get_rank()], steps)
    dist.all_reduce(losses)
    return losses / SIZE


def full(model):
    return {name: parameter.full_tensor().detach() if isinstance(parameter, DTensor) else parameter.detach()
            for name, parameter in model.named_parameters()}


def trained_alone(steps=range(3)):
    """Trains by the tokens of all ranks in this process alone; returns losses and weights."""
    model = made_transformer()
    losses = train(model, optimizer_of(model), lambda step: batch_of(step).flatten(0, 1), steps)
    return {"losses": losses} | full(model)


def check_against_one_process(results):
    for name, expected in trained_alone().items():
        close(results[name], expected)
    return results


@compared
def fsdp_of_a_transformer(folder):
    model = sharded(init_device_mesh("cpu", (SIZE,)))
    losses = train_here(model, optimizer_of(model))
    return check_against_one_process({"losses": losses} | full(model))


@compared
def fsdp_that_keeps_its_weights(folder):
    model = sharded(init_device_mesh("cpu", (SIZE,)), reshard_after_forward=False)
    losses = train_here(model, optimizer_of(model))
    return check_against_one_process({"losses": losses} | full(model))


@compared
def fsdp_of_replicas(folder):
    model = sharded(init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))
    losses = train_here(model, optimizer_of(model))
    return check_against_one_process({"losses": losses} | full(model))


# A part of the gradients of 16 bits: of each rank, then added up in float64.
@compared
def fsdp_in_mixed_precision(folder):
    model = sharded(init_device_mesh("cpu", (SIZE,)), mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float64))
    return {"losses": train_here(model, optimizer_of(model))} | full(model)


def whole_numbers(*shape, seed=0):
    return torch.randint(-9, 9, shape, generator=torch.Generator().manual_seed(seed)).double()


def made_tensor(mesh, placements, shape):
    """Returns a tensor so placed, and its full value; the ranks of partial ones hold different parts of a sum."""
    local = whole_numbers(*shape)
    place = mesh.get_coordinate()
    value = local
    for dimension, placement in enumerate(placements):
        if placement.is_partial():
            local = local * (place[dimension] + 1)
            value = value * sum(range(1, mesh.size(dimension) + 1))
    without = [Replicate() if placement.is_partial() else placement for placement in placements]
    # Every rank makes its part of what it holds; nothing is sent.
    part = distribute_tensor(local, mesh, without, src_data_rank=None).to_local()
    return DTensor.from_local(part, mesh, placements, shape=torch.Size(shape), stride=local.stride()), value


def redistributed(mesh, shape, sources, targets):
    results = {}
    for source, target in product(sources, targets):
        tensor, value = made_tensor(mesh, source, shape)
        moved = tensor.redistribute(mesh, target)
        assert list(moved.placements) == list(target)
        results[f"{source} to {target}"] = moved.to_local()
        torch.testing.assert_close(moved.full_tensor(), value, rtol=0, atol=0)
    return results


PLACES = [Replicate(), Shard(0), Shard(1)]


@compared
def redistribution_on_a_line(folder):
    mesh = init_device_mesh("cpu", (SIZE,))
    sources, targets = [[place] for place in [*PLACES, Partial()]], [[place] for place in PLACES]
    uneven = redistributed(mesh, (7, 5), sources, targets)
    fewer = redistributed(mesh, (2, 3), sources, targets)  # some ranks have nothing
    return uneven | {f"few {name}": tensor for name, tensor in fewer.items()}


@compared
def redistribution_on_a_square(folder):
    mesh = init_device_mesh("cpu", (2, 2))
    sources = [list(pair) for pair in product([*PLACES, Partial()], repeat=2)]
    return redistributed(mesh, (7, 5), sources, [list(pair) for pair in product(PLACES, repeat=2)])


@compared
def other_reductions_of_partial_tensors(folder):
    mesh, results = init_device_mesh("cpu", (SIZE,)), {}
    for operation, target in product(("sum", "max", "min", "product"), PLACES):
        local = whole_numbers(8, 4, seed=dist.get_rank())
        results[f"{operation} to {target}"] = DTensor.from_local(local, mesh, [Partial(operation)]).redistribute(mesh, [target]).to_local()
    return results


@compared
def operators_on_placed_tensors(folder):
    mesh = init_device_mesh("cpu", (2, 2))
    results = {}
    for index, (left, right) in enumerate(product(product(PLACES, repeat=2), repeat=2)):
        a = distribute_tensor(whole_numbers(6, 8, seed=1), mesh, left).requires_grad_()
        b = distribute_tensor(whole_numbers(8, 5, seed=2), mesh, right).requires_grad_()
        product_of = a @ b
        (product_of.sum(0) * 2 + b.mean() * 8).sum().backward()
        results |= {f"{index} product": product_of.full_tensor(), f"{index} a": a.grad.full_tensor(), f"{index} b": b.grad.full_tensor()}
        torch.testing.assert_close(product_of.full_tensor(), whole_numbers(6, 8, seed=1) @ whole_numbers(8, 5, seed=2), rtol=0, atol=0)
    return {name: tensor.detach() for name, tensor in results.items()}


@compared
def groups_of_a_mesh(folder):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("row", "column"))
    results = {}
    for name in ("row", "column"):
        total = torch.tensor([10.0 ** dist.get_rank()])
        dist.all_reduce(total, group=mesh[name].get_group())
        results |= {name: total, f"{name} rank": torch.tensor(mesh.get_local_rank(name))}
    results["all"] = torch.tensor([10.0 ** dist.get_rank()])
    dist.all_reduce(results["all"], group=mesh._flatten("both").get_group())
    assert results["row"] == {0: 101, 1: 1010, 2: 101, 3: 1010}[dist.get_rank()] and results["all"] == 1111
    return results


class Block(nn.Module):
    """What tensor parallelism cuts: a norm on pieces of the sequence, a layer by its outputs and one by its inputs."""

    def __init__(self):
        super().__init__()
        self.entry = nn.Identity()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)
        self.out = nn.Linear(8, 12)

    def forward(self, x):
        return self.out(self.down(torch.relu(self.up(self.norm(self.entry(x))))))


def made_block():
    torch.manual_seed(5)
    return Block().double()


PLAN = {
    "entry": PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(1)),
    "norm": SequenceParallel(),
    "up": ColwiseParallel(input_layouts=Shard(1)),
    "down": RowwiseParallel(output_layouts=Replicate()),
    "out": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
}


def inputs_of(count):
    generator = torch.Generator().manual_seed(7)
    return torch.randn(count, SIZE, 8, generator=generator).double(), torch.randint(12, (count, SIZE), generator=generator)


def block_loss(model, x, target):
    return nn.functional.cross_entropy(model(x).flatten(0, 1), target.flatten())


def gradients(model):
    return {name: parameter.grad.full_tensor() if isinstance(parameter.grad, DTensor) else parameter.grad
            for name, parameter in model.named_parameters()}


def check_gradients(results, count):
    alone = made_block()
    loss = block_loss(alone, *inputs_of(count))
    loss.backward()
    for name, expected in ({"loss": loss.detach()} | gradients(alone)).items():
        close(results[name], expected)
    return results


@compared
def tensor_parallelism(folder):
    mesh = init_device_mesh("cpu", (SIZE,))
    model = parallelize_module(made_block(), mesh, PLAN)
    with loss_parallel():
        loss = block_loss(model, *inputs_of(3))
        loss.backward()
    return check_gradients({"loss": loss.full_tensor().detach()} | gradients(model), 3)


@compared
def tensor_parallelism_within_fsdp(folder):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    model = fully_shard(parallelize_module(made_block(), mesh["tensor"], PLAN), mesh=mesh["data"])
    x, target = (part.chunk(2)[mesh.get_local_rank("data")] for part in inputs_of(4))
    with loss_parallel():
        loss = block_loss(model, x, target)
        loss.backward()
    mean = loss.full_tensor().detach()
    dist.all_reduce(mean, group=mesh["data"].get_group())
    return check_gradients({"loss": mean / 2} | gradients(model), 4)


def state_of(model, optimizer):
    weights, state = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": state}


def loaded(folder, model):
    """Returns losses and weights of a model that goes on from a checkpoint."""
    optimizer = optimizer_of(model)
    state = state_of(model, optimizer)
    checkpoint.load(state, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return {"losses": train_here(model, optimizer, range(1, 3))} | full(model)


# Written by shards of a line, and read by shards of a square and by whole copies.
@compared
def checkpoints(folder):
    model = sharded(init_device_mesh("cpu", (SIZE,)))
    optimizer = optimizer_of(model)
    train_here(model, optimizer, range(1))
    checkpoint.save(state_of(model, optimizer), checkpoint_id=f"{folder}/saved")
    checkpoint.async_save(state_of(model, optimizer), checkpoint_id=f"{folder}/later").result()
    results = {"losses": train_here(model, optimizer, range(1, 3))} | full(model)
    square = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    for each, again in (("saved", sharded(square)), ("later", sharded(init_device_mesh("cpu", (SIZE,)))), ("saved", fully_shard(made_transformer()))):
        for name, tensor in loaded(f"{folder}/{each}", again).items():
            close(tensor, results[name])
    return results


def same(got, expected):
    assert got.keys() == expected.keys(), (got.keys(), expected.keys())
    for name, tensor in expected.items():
        torch.testing.assert_close(got[name], tensor, rtol=1e-9, atol=1e-9, msg=lambda text: f"{name}: {text}")


def run_rank(rank, names, folder):
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    for test in TESTS:
        name = test.__name__
        if name not in names:
            continue
        try:
            results = {}
            for backend in ("gloo", "lockstep"):
                file = f"file://{folder}/{name}-{backend}"
                dist.init_process_group(backend, init_method=file, rank=rank, world_size=SIZE, timeout=LIMIT)
                assert dist.get_backend() == backend
                results[backend] = test(f"{folder}/{name}-{backend}-files")
                dist.barrier()
                dist.destroy_process_group()
            same(results["lockstep"], results["gloo"])
            if rank == 0:
                print(f"ok    {name}, {len(results['gloo'])} tensors", flush=True)
        except BaseException:
            with open(f"{folder}/failures-{rank}", "a") as failures:
                print(f"{name}, rank {rank}: {traceback.format_exc()}", file=failures)
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()


def main():
    pattern = sys.argv[1] if len(sys.argv) > 1 else ""
    names = processes.names_of([test.__name__ for test in TESTS], pattern)
    codes, failures = processes.run(run_rank, names, SIZE)
    if any(codes):
        print(f"the processes ended with {codes}")
    print(failures, end="")
    return bool(failures) or any(codes)


if __name__ == "__main__":
    sys.exit(main())
