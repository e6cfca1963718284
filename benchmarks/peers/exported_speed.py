"""Exports a net with data to train it on, or trains it in Python PyTorch from this data and prints the seconds of a step.

    python exported_speed.py --net resnet18 --make FOLDER
    python exported_speed.py --net resnet18 --data FOLDER --ranks 1 --threads 2 --compile --channels-last

Batches lie in memory, ready to use. Malloc is tuned, SGD is fused, gradients are views of DDP's buckets; with --sharded the ranks share
each block's parameters by FSDP2. Rank 0 ends with a line of JSON: seconds of a step, and the most bytes that all ranks had resident. Needs torch, torchvision, timm, transformers and safetensors.
"""

import argparse
import json
import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import exported_nets as nets
from ranks import MALLOC, shared_by_blocks, start_ranks


@dataclass
class Work:
    """A net with its inputs, of two samples, and their dynamic sizes; the batch of all ranks together, and what a target is."""

    make: Callable
    batch: int
    target: str = "class"  # or "tokens", a class of each word, or "pixels"
    classes: int = 10


def gpt2():
    return nets.of_transformers("GPT2", "GPT2LMHeadModel", "input_ids", lengths=(64,), vocab=4000, n_layer=4, n_head=4, n_embd=256, n_positions=64)


def bert():
    return nets.of_transformers("Bert", "BertForSequenceClassification", "input_ids", lengths=(64,), cache=False, vocab=4000, hidden_size=256,
                                num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024, max_position_embeddings=64, num_labels=10)


WORKS = {
    "resnet18": Work(lambda: nets.of_torchvision("resnet18"), 32),
    "resnet50": Work(lambda: nets.of_timm("resnet50"), 16),
    "mobilenet_v3_small": Work(lambda: nets.of_timm("mobilenetv3_small_100", 96), 64),
    "efficientnet_b0": Work(lambda: nets.of_timm("efficientnet_b0"), 32),
    "convnext_atto": Work(lambda: nets.of_timm("convnext_atto"), 64),
    "vit_tiny": Work(lambda: nets.of_timm("vit_tiny_patch16_224", img_size=64, patch_size=8), 16),
    "swin": Work(lambda: nets.of_timm("swin_tiny_patch4_window7_224", 112, img_size=112, embed_dim=48, depths=(1, 1, 2, 1),
                                      num_heads=(2, 4, 8, 16), drop_path_rate=0.0), 16),
    "mixer": Work(lambda: nets.of_timm("mixer_s16_224", img_size=64), 16),
    "unet": Work(lambda: (nets.UNet(32), *nets.images(96)), 8, "pixels", 2),
    "lstm_tagger": Work(lambda: (nets.Tagger("LSTM", 256), *nets.ids(32, varies=False)), 64, "tokens", 5),
    "gpt2": Work(gpt2, 16, "tokens", 4000),
    "bert": Work(bert, 16),
}
BATCHES = 8


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--net", choices=WORKS)
    parser.add_argument("--make", metavar="FOLDER")
    parser.add_argument("--data", metavar="FOLDER")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--lines", type=int, default=6, help="so many times are taken")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2, help="of each rank")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--sharded", action="store_true", help="FSDP2 in place of DDP")
    parser.add_argument("--optimizer", choices=["sgd", "adamw"], default="sgd")
    return parser.parse_args()


arguments = parse_arguments()
if arguments.list:
    print("\n".join(WORKS))
    raise SystemExit
if arguments.data and "RANK" not in os.environ:
    start_ranks(arguments.ranks, **MALLOC, OMP_NUM_THREADS=str(arguments.threads))

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

WORK = WORKS[arguments.net]


def target_like(x):
    """Draws the targets of a batch of inputs."""
    shape = {"class": x.shape[:1], "tokens": x.shape, "pixels": (x.shape[0], *x.shape[2:])}[WORK.target]
    return torch.randint(WORK.classes, shape)


def make():
    """Writes net.pt2, train.safetensors and, as trainings ask for one, test.safetensors."""
    torch.manual_seed(0)
    net, (x,), dims = WORK.make()
    shapes = (dims,) if isinstance(net, nets.Logits) else dims
    torch.export.save(torch.export.export(net.train(), (x,), dynamic_shapes=shapes), Path(arguments.make) / "net.pt2")
    many = (BATCHES * WORK.batch, *x.shape[1:])
    inputs = torch.randn(many) if x.is_floating_point() else torch.randint(nets.WORDS, many)
    targets = target_like(inputs)
    targets.view(-1)[0] = WORK.classes - 1
    data = {"x": inputs, "target": targets}
    save_file(data, Path(arguments.make) / "train.safetensors")
    save_file({name: value[:WORK.batch].clone() for name, value in data.items()}, Path(arguments.make) / "test.safetensors")
    parameters = sum(parameter.numel() for parameter in net.parameters())
    print(json.dumps({"batch": WORK.batch, "target": WORK.target, "classes": WORK.classes, "parameters": parameters, "images": x.dim() == 4}))


def loss_of(outputs, target):
    if WORK.target == "tokens":
        return F.cross_entropy(outputs.flatten(0, 1), target.flatten())
    return F.cross_entropy(outputs, target)


def batches_of(rank, world):
    data = load_file(Path(arguments.data) / "train.safetensors")
    inputs, targets = (data[name].split(WORK.batch // world)[rank::world] for name in ("x", "target"))
    if arguments.channels_last:
        inputs = [x.contiguous(memory_format=torch.channels_last) for x in inputs]
    return list(zip(inputs, targets))


def spread(net, world):
    """Returns the net as the ranks train it together."""
    if world == 1:
        return net
    if not arguments.sharded:
        return DistributedDataParallel(net, gradient_as_bucket_view=True, static_graph=True)
    return shared_by_blocks(net, world)


def optimizer_of(net):
    if arguments.optimizer == "adamw":
        return torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
    return torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, fused=True)


def peak_bytes():
    """Returns the most that the processes of all ranks have had resident."""
    peak = torch.tensor([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024])
    dist.all_reduce(peak)
    return peak.item()


def main():
    torch.set_flush_denormal(True)  # as Lockstep does
    torch.set_num_threads(arguments.threads)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = WORK.make()[0].train()
    if arguments.channels_last:
        net = net.to(memory_format=torch.channels_last)
    model = spread(net, world)
    if arguments.compile:
        model = torch.compile(model)
    optimizer = optimizer_of(net)
    batches, seconds = batches_of(rank, world), []
    steps_of_line = arguments.steps // arguments.lines
    for line in range(arguments.lines):
        start = time.perf_counter()
        for step in range(line * steps_of_line, (line + 1) * steps_of_line):
            x, target = batches[step % BATCHES]
            optimizer.zero_grad()  # to None: cheaper than filling with zeros
            loss_of(model(x), target).backward()
            optimizer.step()
        seconds.append((time.perf_counter() - start) / steps_of_line)
    peak = peak_bytes()
    if rank == 0:
        print(json.dumps({"seconds": seconds, "peak_bytes": peak}), flush=True)
    dist.barrier()
    os._exit(0)  # at an ordinary end Gloo's threads sometimes call std::terminate


if __name__ == "__main__":
    make() if arguments.make else main()
