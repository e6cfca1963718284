#!/usr/bin/env python3
"""Measures how far the steps that `lockstep plan` predicts by a profile of lockstep.profile() are from those of Python's trainings.

    PYTHONPATH=python benchmarks/python_profile.py [--backend lockstep] [--rounds 2] [--nets resnet18 vit gpt2]

Needs torchvision, timm and transformers; --backend lockstep needs the extension: PYTHONPATH=build/release/python. In each round each net
is profiled by two processes of one thread each, with three batches; then new processes train it with a batch that was not measured, ten
steps after three: one rank, and two by DistributedDataParallel. Printed are the median of the ten, and what was planned. Some five minutes.
"""

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from commands import SharedTime, aligned, last_json, output_of, parser_of, setting
from peers.ranks import leave
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import lockstep

WARM_UP, STEPS = 3, 10
TOKENS, SEQUENCE = 4096, 64


def resnet18():
    import torchvision

    return torchvision.models.resnet18(num_classes=10)


def vit():
    import timm

    return timm.create_model("vit_tiny_patch16_224", img_size=64, num_classes=10)


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(vocab_size=TOKENS, n_positions=SEQUENCE, n_layer=4, n_embd=256, n_head=4, bos_token_id=0, eos_token_id=0))


def images(samples):
    return torch.randn(samples, 3, 64, 64), torch.randint(10, (samples,))


def tokens(samples):
    drawn = torch.randint(TOKENS, (samples, SEQUENCE))
    return {"input_ids": drawn, "labels": drawn}


# Model, data, loss, batches that are measured, the batch of a rank that is predicted.
NETS = {
    "resnet18": (resnet18, images, cross_entropy, (4, 8, 16), 12),
    "vit": (vit, images, cross_entropy, (16, 32, 64), 48),
    "gpt2": (gpt2, tokens, None, (2, 4, 8), 6),
}


def loss_of(net, batch, loss):
    return net(**batch).loss if loss is None else loss(net(batch[0]), batch[1])


def begin(rank, ranks, backend, folder):
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    if backend == "lockstep":
        import lockstep.distributed  # noqa: F401
    dist.init_process_group(backend, init_method=f"file://{folder}/world", rank=rank, world_size=ranks)


def profile(rank, ranks, name, backend, folder, file):
    begin(rank, ranks, backend, folder)
    make, data, loss, batches, _ = NETS[name]
    lockstep.profile(make(), data(batches[-1]), loss=loss, batches=batches, path=file)
    leave()


def train(rank, ranks, name, backend, folder, file):
    """Writes the seconds of each step of rank 0."""
    begin(rank, ranks, backend, folder)
    make, data, loss, _, asked = NETS[name]
    net, batch = make(), data(asked)
    net = DistributedDataParallel(net) if ranks > 1 else net
    optimizer = torch.optim.AdamW(net.parameters())
    seconds = []
    for _ in range(WARM_UP + STEPS):
        started = time.perf_counter()
        optimizer.zero_grad()
        loss_of(net, batch, loss).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - started)
    if rank == 0:
        Path(file).write_text(json.dumps(seconds[WARM_UP:]))
    leave()


def in_processes(work, ranks, name, arguments, file):
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (ranks, name, arguments.backend, folder, str(file)), nprocs=ranks)


def predicted(arguments, file, ranks, batch):
    """Returns the planned way: its step in seconds, and the interval around it."""
    words = ["plan", "--profile", str(file), "--batch", str(batch * ranks), "--places", str(ranks), "--ways", "ddp" if ranks > 1 else "serial"]
    [choice] = last_json(output_of([arguments.lockstep, *words, "--json"]))["choices"]
    return choice


def compare(name, arguments, folder):
    """Profiles a net, and trains it by one rank and by two. Returns a row for each."""
    file, steps = folder / "p.json", folder / "steps.json"
    in_processes(profile, 2, name, arguments, file)
    rows = []
    for ranks in (1, 2):
        plan = predicted(arguments, file, ranks, NETS[name][-1])
        in_processes(train, ranks, name, arguments, steps)
        measured = statistics.median(json.loads(steps.read_text()))
        rows.append({"net": name, "ranks": ranks, "planned": plan["step_seconds"], "measured": measured,
                     "error": plan["step_seconds"] / measured - 1, "holds": plan["least_seconds"] <= measured <= plan["most_seconds"]})
    return rows


def shown(row):
    return [row["net"], str(row["ranks"]), f"{1e3 * row['planned']:.1f}", f"{1e3 * row['measured']:.1f}", f"{row['error']:+.1%}",
            "yes" if row["holds"] else "no"]


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--backend", default="gloo", choices=["gloo", "lockstep"])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--nets", nargs="+", choices=NETS, default=list(NETS))
    arguments = parser.parse_args()
    print(setting(f"PyTorch {torch.__version__}", arguments.backend, f"{arguments.rounds} rounds"), flush=True)
    busy, rows = SharedTime(), []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(arguments.rounds):
            for name in arguments.nets:
                rows += compare(name, arguments, Path(folder))
    print(aligned([["net", "ranks", "planned, ms", "measured, ms", "error", "in interval"], *map(shown, rows)]))
    errors = [abs(row["error"]) for row in rows]
    print(f"median error {statistics.median(errors):.1%}, largest {max(errors):.1%}, of {len(rows)}; others used {busy.of_others():.0%} of the cores")


if __name__ == "__main__":
    sys.exit(main())
