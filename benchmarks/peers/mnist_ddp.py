"""The work of `lockstep train --model mnist-small --data fashion-mnist --parallel ddp` in Python PyTorch, with its best settings.

    python mnist_ddp.py                      # the strongest peer: 2 ranks, Gloo DDP, bf16, channels-last, tuned malloc
    python mnist_ddp.py --plain              # as users write it first: item by item, fp32, NCHW, default malloc
    python mnist_ddp.py --model large --epochs 1 --limit 6400

Starts its own ranks through torchrun; rank 0 prints one JSON line per epoch.
"""

import argparse
import json
import os
import time

from ranks import MALLOC, leave, start_ranks


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["small", "large"], default="small")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=128, help="per rank")
    parser.add_argument("--nproc-per-node", type=int, default=2)
    parser.add_argument("--precision", choices=["bf16-mixed", "32"], default="bf16-mixed")
    parser.add_argument("--limit", type=int, default=0, help="train on the first LIMIT images only")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--plain", action="store_true", help="DataLoader item by item, fp32, NCHW, default malloc")
    parser.add_argument("--compile", action="store_true", help="torch.compile the wrapped net")
    parser.add_argument("--pin", action="store_true", help="bind each rank to one core; slower: Gloo's thread shares it")
    return parser.parse_args()


arguments = parse_arguments()
if "RANK" not in os.environ:
    start_ranks(arguments.nproc_per_node, **({} if arguments.plain else MALLOC))

import torch
import torch.distributed as dist
from mnist import channels_last, make_net, one_channel_nhwc, read_set
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

torch.set_flush_denormal(True)  # as Lockstep does; without it long trainings of small nets are slower
MIXED = arguments.precision == "bf16-mixed" and not arguments.plain
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


class Images(Dataset):
    """The data set as users write it: every item is converted when it is requested."""

    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index].view(1, 28, 28).float().div_(255), self.labels[index]


def plain_batches(images, labels):
    data = Images(images, labels)
    sampler = DistributedSampler(data, WORLD, RANK, shuffle=True, seed=arguments.seed)
    loader = DataLoader(data, arguments.batch_size, sampler=sampler)

    def batches(epoch):
        sampler.set_epoch(epoch)
        return loader

    return batches


def tuned_batches(images, labels):
    # Converted once and permuted once per epoch, so that a batch is a slice. One index_select per batch, or uint8 in memory
    # with a conversion per batch, differ by less than the noise.
    images = images.to(torch.float32).div_(255).to(torch.bfloat16 if MIXED else torch.float32)

    def batches(epoch):
        generator = torch.Generator().manual_seed(arguments.seed + epoch)
        order = torch.randperm(len(images), generator=generator)
        order = torch.cat([order, order[: -len(order) % WORLD]])[RANK::WORLD]
        own_images, own_labels = images.index_select(0, order), labels.index_select(0, order)
        for batch, target in zip(own_images.split(arguments.batch_size), own_labels.split(arguments.batch_size)):
            yield one_channel_nhwc(batch, 28, 28), target

    return batches


def train_epoch(model, optimizer, batches):
    loss_function = nn.CrossEntropyLoss()
    losses = []
    for images, labels in batches:
        optimizer.zero_grad()  # to None: cheaper than filling with zeros
        with torch.autocast("cpu", torch.bfloat16, enabled=MIXED):
            loss = loss_function(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).mean().item(), len(losses)


@torch.no_grad()
def accuracy(net):
    images, labels = read_set(arguments.data, "t10k")
    with torch.autocast("cpu", torch.bfloat16, enabled=MIXED):
        answers = [net(part.float().div_(255).view(-1, 1, 28, 28)).argmax(1) for part in images.split(1000)]
    return (torch.cat(answers) == labels).float().mean().item()


def main():
    torch.set_num_threads(1)
    if arguments.pin:
        os.sched_setaffinity(0, {RANK % os.cpu_count()})
    dist.init_process_group("gloo")
    torch.manual_seed(arguments.seed)
    net = make_net(arguments.model)
    images, labels = read_set(arguments.data, "train")
    if arguments.limit:
        images, labels = images[: arguments.limit], labels[: arguments.limit]
    if not arguments.plain:
        net = channels_last(net)
    # bucket_cap_mb 1 and 25, with and without static_graph, are equal within noise here.
    ddp = DistributedDataParallel(net, gradient_as_bucket_view=not arguments.plain, static_graph=not arguments.plain)
    model = torch.compile(ddp) if arguments.compile else ddp
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, eps=1e-7, fused=None if arguments.plain else True)
    batches = plain_batches(images, labels) if arguments.plain else tuned_batches(images, labels)

    for epoch in range(arguments.epochs):
        dist.barrier()
        start = time.perf_counter()
        loss, steps = train_epoch(model, optimizer, batches(epoch))
        dist.barrier()
        seconds = time.perf_counter() - start
        record = {"peer": "plain" if arguments.plain else "tuned", "compile": arguments.compile}
        record |= {"model": arguments.model, "epoch": epoch, "seconds": round(seconds, 4), "samples": len(images)}
        record |= {"samples_per_s": round(len(images) / seconds, 1), "step_ms": round(1e3 * seconds / steps, 3)}
        record |= {"train_loss": round(loss, 5), "world_size": WORLD, "torch": torch.__version__}
        if epoch + 1 == arguments.epochs:
            record["test_accuracy"] = round(accuracy(net), 4)
        if RANK == 0:
            print(json.dumps(record), flush=True)
    leave()


main()
