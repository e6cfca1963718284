"""The work of `lockstep train --data mock` for any of the nets that Lockstep has, in Python PyTorch with its best settings.

    python nets.py --net resnet18 --image-size 32 --batch-size 128              # 2 ranks of one thread, Gloo DDP, fp32
    python nets.py --net resnet50 --batch-size 16 --ranks 1 --threads 2 --compile
    python nets.py --net resnet18 --image-size 32 --augment timm
    python nets.py --net resnet50 --device cuda --batch-size 128 --precision bf16-mixed --compile

Images are drawn once and stay in memory, as float channels-last batches where nothing is to be done to them. Starts its own
ranks through torchrun, but for one GPU, where cuDNN may choose its kernels by time and images lie in the GPU's memory; rank 0
prints one JSON line per epoch. Needs torch, torchvision and, for --augment timm, timm.
"""

import argparse
import json
import os
import time

from ranks import MALLOC, start_ranks

NETS = ["mnist-small", "mnist-large", "resnet18", "resnet18-cifar", "resnet50", "vgg19"]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", choices=NETS, default="resnet18")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch-size", type=int, default=128, help="per rank")
    parser.add_argument("--batches", type=int, default=8, help="of each rank and epoch")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of each rank")
    parser.add_argument("--precision", choices=["bf16-mixed", "32"], default="32")
    parser.add_argument("--augment", choices=["none", "timm"], default="none")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="cuda: one rank on one GPU")
    parser.add_argument("--compile", action="store_true", help="torch.compile the wrapped net; on a GPU with CUDA graphs")
    parser.add_argument("--seed", type=int, default=42)
    return parser.parse_args()


arguments = parse_arguments()
if arguments.device == "cuda":
    os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="localhost", MASTER_PORT="0")
elif "RANK" not in os.environ:
    start_ranks(arguments.ranks, **MALLOC, OMP_NUM_THREADS=str(arguments.threads))

import mnist
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from catalogue import make_net

torch.set_flush_denormal(True)  # as Lockstep does; without it long trainings of small nets are slower
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.backends.cudnn.benchmark = True
CHANNELS = 1 if arguments.net.startswith("mnist") else 3


class Plain:
    """Batches that lie ready in memory; two of them, since more would not be slower to read."""

    def __init__(self):
        size = arguments.image_size
        images = torch.randn(2, arguments.batch_size, CHANNELS, size, size)
        in_order = (lambda batch: mnist.one_channel_nhwc(batch, size, size)) if CHANNELS == 1 else (
            lambda batch: batch.contiguous(memory_format=torch.channels_last))
        self.images = [in_order(batch).to(arguments.device) for batch in images]
        self.labels = torch.randint(arguments.classes, (2, arguments.batch_size)).to(arguments.device)

    def epoch(self):
        for index in range(arguments.batches):
            yield self.images[index % 2], self.labels[index % 2]


class Augmented:
    """Images of bytes, each transformed by timm's create_transform when its batch is made."""

    def __init__(self):
        from timm.data import create_transform

        size = arguments.image_size
        count = arguments.batches * arguments.batch_size
        self.images = torch.randint(256, (count, size, size, 3), dtype=torch.uint8).numpy()
        self.labels = torch.randint(arguments.classes, (count,))
        self.transform = create_transform(
            input_size=(3, size, size), is_training=True, color_jitter=0.4, auto_augment="rand-m9-mstd0.5-inc1",
            interpolation="bicubic", re_prob=0.25, re_mode="pixel", re_count=1)

    def epoch(self):
        from PIL import Image

        for indices in torch.randperm(len(self.labels)).split(arguments.batch_size):
            batch = torch.stack([self.transform(Image.fromarray(self.images[index])) for index in indices.tolist()])
            yield batch.contiguous(memory_format=torch.channels_last), self.labels[indices]


def train_epoch(model, optimizer, batches):
    loss_function = nn.CrossEntropyLoss()
    for images, labels in batches:
        optimizer.zero_grad()  # to None: cheaper than filling with zeros
        with torch.autocast(arguments.device, torch.bfloat16, enabled=arguments.precision == "bf16-mixed"):
            loss = loss_function(model(images), labels)
        loss.backward()
        optimizer.step()


def flops_of_an_image(net):
    """Returns the operations of direct convolutions and matrix products, forward and backward."""
    from torch.utils.flop_counter import FlopCounterMode

    images = torch.randn(2, CHANNELS, arguments.image_size, arguments.image_size)
    with FlopCounterMode(display=False) as counter:
        net(images).sum().backward()
    net.zero_grad()
    return counter.get_total_flops() / len(images)


def main():
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(arguments.seed)
    dist.init_process_group("gloo")
    wait = torch.cuda.synchronize if arguments.device == "cuda" else dist.barrier
    net = make_net(arguments.net, arguments.classes)
    flops = flops_of_an_image(net) if RANK == 0 else 0
    data = Augmented() if arguments.augment == "timm" else Plain()
    model = net.to(arguments.device)
    if WORLD > 1:
        model = DistributedDataParallel(net, gradient_as_bucket_view=True, static_graph=True)
    if arguments.compile:
        model = torch.compile(model, mode="reduce-overhead" if arguments.device == "cuda" else None)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    for epoch in range(arguments.epochs):
        wait()
        start = time.perf_counter()
        train_epoch(model, optimizer, data.epoch())
        wait()
        seconds = time.perf_counter() - start
        if RANK == 0:
            images = arguments.batches * arguments.batch_size * WORLD
            record = {"epoch": epoch, "seconds": seconds, "images": images, "images_per_s": images / seconds}
            print(json.dumps(record | {"flops_per_image": flops}), flush=True)
    dist.destroy_process_group()


main()
