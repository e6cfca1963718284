"""The work of `lockstep train --model resnet18-cifar --data cifar100:DIR --augment timm --parallel ddp` in Python PyTorch.

    python cifar_resnet18.py --data DIR                  # 2 ranks, Gloo DDP, bf16, channels-last, tuned malloc
    python cifar_resnet18.py --data DIR --epochs 4 --augment none

Needs torch, torchvision, timm, numpy and Pillow below 13 (timm 1.0.31 asks its posterize for 0 bits, which 13 refuses). DIR
holds CIFAR-100's binary version. Starts its own ranks through torchrun; rank 0 prints one JSON line per epoch.
"""

import argparse
import json
import math
import os
import time
from pathlib import Path

from ranks import MALLOC, leave, start_ranks

WARMUP_LR = 1e-5
MEAN, STD = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--model", choices=["resnet18-cifar", "resnet18"], default="resnet18-cifar",
                        help="resnet18 has the stem for large images and needs a fifteenth of the arithmetic")
    parser.add_argument("--augment", choices=["timm", "crop-flip", "none"], default="timm")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64, help="per rank")
    parser.add_argument("--nproc-per-node", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--weight-decay", type=float, default=5e-4)
    parser.add_argument("--warmup-epochs", type=int, default=1)
    parser.add_argument("--workers", type=int, default=0, help="processes of each rank that prepare batches")
    parser.add_argument("--precision", choices=["bf16-mixed", "32"], default="bf16-mixed")
    parser.add_argument("--steps", type=int, help="end after this number of steps and print the loss of each over all ranks")
    parser.add_argument("--initial-weights", help="write the initial weights to this file")
    parser.add_argument("--seed", type=int, default=42)
    return parser.parse_args()


arguments = parse_arguments()
if "RANK" not in os.environ:
    start_ranks(arguments.nproc_per_node, **MALLOC)

import numpy
import torch
import torch.distributed as dist
import torchvision
from PIL import Image
from timm.data import create_transform
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torchvision import transforms

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def read_set(name):
    folder = Path(arguments.data)
    inner = folder / "cifar-100-binary"
    records = numpy.fromfile((inner if inner.is_dir() else folder) / f"{name}.bin", dtype=numpy.uint8).reshape(-1, 3074)
    images = records[:, 2:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).copy()
    return images, torch.from_numpy(records[:, 1].astype(numpy.int64))


def normalised(images):
    scaled = torch.from_numpy(images).permute(0, 3, 1, 2).float().div_(255)
    return scaled.sub_(torch.tensor(MEAN).view(3, 1, 1)).div_(torch.tensor(STD).view(3, 1, 1))


def transform_of(augment):
    if augment == "timm":
        return create_transform(
            input_size=(3, 32, 32), is_training=True, color_jitter=0.4, auto_augment="rand-m9-mstd0.5-inc1",
            interpolation="bicubic", re_prob=0.25, re_mode="pixel", re_count=1, mean=MEAN, std=STD)
    return transforms.Compose([
        transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
        transforms.Normalize(MEAN, STD)])


class Augmented(Dataset):
    def __init__(self, images, labels):
        self.images, self.labels = images, labels
        self.transform = transform_of(arguments.augment)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.transform(Image.fromarray(self.images[index])), self.labels[index]


class Plain(Dataset):
    def __init__(self, images, labels):
        self.images, self.labels = normalised(images), labels

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


def make_net(classes):
    net = torchvision.models.resnet18(num_classes=classes)
    if arguments.model == "resnet18-cifar":
        net.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
        nn.init.kaiming_normal_(net.conv1.weight, mode="fan_out", nonlinearity="relu")
        net.maxpool = nn.Identity()
    return net.to(memory_format=torch.channels_last)


def learning_rate(step, steps_an_epoch):
    """Returns the rate: a linear warm-up, then half a cosine over the remaining steps."""
    total, warm = arguments.epochs * steps_an_epoch, arguments.warmup_epochs * steps_an_epoch
    if step < warm:
        return WARMUP_LR + (arguments.lr - WARMUP_LR) * step / warm
    return arguments.lr * 0.5 * (1 + math.cos(math.pi * (step - warm) / (total - warm)))


def half_precision():
    return torch.autocast("cpu", torch.bfloat16, enabled=arguments.precision == "bf16-mixed")


def evaluate(net, images, labels):
    net.eval()
    own_images, own_labels = normalised(images[RANK::WORLD]), labels[RANK::WORLD]
    hits = torch.zeros(2, dtype=torch.double)
    with torch.no_grad(), half_precision():
        for batch, target in zip(own_images.split(200), own_labels.split(200)):
            scores = net(batch.contiguous(memory_format=torch.channels_last))
            hits += torch.tensor([(scores.argmax(1) == target).sum(), len(target)])
    dist.all_reduce(hits)
    return (hits[0] / hits[1]).item()


def tell_of_step(step, loss):
    loss = loss.detach().clone()
    dist.all_reduce(loss)
    if RANK == 0:
        print(json.dumps({"step": step, "loss": loss.item() / WORLD}), flush=True)
    if step == arguments.steps:
        leave()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    dist.init_process_group("gloo")
    images, labels = read_set("train")
    test_images, test_labels = read_set("test")
    net = make_net(100)
    if arguments.initial_weights and RANK == 0:
        torch.save(net.state_dict(), arguments.initial_weights)
    model = DistributedDataParallel(net, gradient_as_bucket_view=True, static_graph=True)
    optimizer = torch.optim.SGD(
        net.parameters(), lr=arguments.lr, momentum=0.9, weight_decay=arguments.weight_decay, fused=True)
    data = (Plain if arguments.augment == "none" else Augmented)(images, labels)
    sampler = DistributedSampler(data, WORLD, RANK, shuffle=True, seed=arguments.seed)
    loader = DataLoader(data, arguments.batch_size, sampler=sampler, num_workers=arguments.workers)
    loss_function, step = nn.CrossEntropyLoss(), 0
    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        torch.manual_seed(arguments.seed + epoch * WORLD + RANK)
        net.train()
        dist.barrier()
        start, losses = time.monotonic(), []
        for batch, target in loader:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, len(loader))
            optimizer.zero_grad()
            with half_precision():
                loss = loss_function(model(batch.contiguous(memory_format=torch.channels_last)), target)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            step += 1
            if arguments.steps:
                tell_of_step(step, loss)
        dist.barrier()
        seconds = time.monotonic() - start
        accuracy = evaluate(net, test_images, test_labels)
        if RANK == 0:
            print(json.dumps({
                "epoch": epoch + 1, "seconds": seconds, "samples": len(sampler) * WORLD,
                "train_loss": torch.stack(losses).mean().item(), "test_accuracy": accuracy}), flush=True)
    leave()


main()
