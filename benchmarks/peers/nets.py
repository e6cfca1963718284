"""Trains a net of works.py in Python PyTorch and prints the seconds of a step, or writes what others train it from.

    python nets.py --net resnet18 --ranks 1 --threads 2 --compile --channels-last --precision bf16-mixed
    python nets.py --net vit_tiny --make FOLDER
    python nets.py --roof

Batches lie in memory, ready to use, but those of timm's augmentation. Malloc is tuned, the optimizer is fused, gradients are views of DDP's
buckets; with --sharded the ranks share each block's parameters by FSDP2. Rank 0 ends with a line of JSON: seconds of a step, and the most bytes
that all ranks had resident. Needs torch, torchvision, timm, transformers and safetensors, each for some of the nets.

--make writes the net, exported, if Lockstep has none, data to train it on, and for nets_jax.py the first loss, and weights before and after some
steps; it prints whether the net takes images, its parameters, and the operations that a sample needs. --roof prints what large products and a
large copy reach.
"""

import argparse
import copy
import json
import os
import resource
import time
from pathlib import Path

from ranks import MALLOC, leave, shared_by_blocks, start_ranks
from works import CHECKED, IN_JAX, WORKS


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--roof", action="store_true")
    parser.add_argument("--net", choices=WORKS, default="resnet18")
    parser.add_argument("--make", metavar="FOLDER")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--lines", type=int, default=6, help="so many times are taken")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2, help="of each rank")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--precision", choices=["32", "bf16-mixed"], default="32")
    parser.add_argument("--sharded", action="store_true", help="FSDP2 in place of DDP")
    parser.add_argument("--optimizer", choices=["adam", "adamw", "sgd"], help="the net's own, unless given")
    return parser.parse_args()


arguments = parse_arguments()
if not arguments.make and not arguments.roof and "RANK" not in os.environ:
    start_ranks(arguments.ranks, **MALLOC, OMP_NUM_THREADS=str(arguments.threads))

import exported_nets as nets
import mnist
import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

WORK = WORKS[arguments.net]
BATCHES = 8


def target_like(x):
    """Draws the targets of a batch of inputs."""
    shape = {"class": x.shape[:1], "tokens": x.shape, "pixels": (x.shape[0], *x.shape[2:])}[WORK.target]
    return torch.randint(WORK.classes, shape)


def drawn(x):
    """Draws batches of inputs like x, and their targets."""
    many = (BATCHES * WORK.batch, *x.shape[1:])
    inputs = torch.randn(many) if x.is_floating_point() else torch.randint(WORK.words, many)
    targets = target_like(inputs)
    targets.view(-1)[0] = WORK.classes - 1  # which tells their number
    return inputs, targets


def in_order(x):
    return mnist.images_channels_last(x) if arguments.channels_last else x


class Ready:
    """A rank's parts of batches, which lie in memory."""

    def __init__(self, inputs, targets, rank=0, world=1):
        parts = (values.split(WORK.batch // world)[rank::world] for values in (inputs, targets))
        self.batches = [(in_order(x), target) for x, target in zip(*parts)]

    def __getitem__(self, step):
        return self.batches[step % BATCHES]


class Augmented:
    """A rank's part of one batch of images of bytes, which timm's create_transform changes in each step."""

    def __init__(self, world):
        from timm.data import create_transform

        self.images = torch.randint(256, (WORK.batch // world, WORK.side, WORK.side, 3), dtype=torch.uint8).numpy()
        self.labels = torch.randint(WORK.classes, (len(self.images),))
        self.transform = create_transform(
            input_size=(3, WORK.side, WORK.side), is_training=True, color_jitter=0.4, auto_augment="rand-m9-mstd0.5-inc1",
            interpolation="bicubic", re_prob=0.25, re_mode="pixel", re_count=1)

    def __getitem__(self, step):
        from PIL import Image

        indices = torch.randperm(len(self.labels))
        batch = torch.stack([self.transform(Image.fromarray(self.images[index])) for index in indices.tolist()])
        return in_order(batch), self.labels[indices]


def optimizer_of(net):
    kind = arguments.optimizer or WORK.optimizer
    if kind == "sgd":
        return torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, fused=True)
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[kind](net.parameters(), lr=1e-3, fused=True)


def loss_of(outputs, target):
    if WORK.target == "tokens":
        return F.cross_entropy(outputs.flatten(0, 1), target.flatten())
    return F.cross_entropy(outputs, target)


def train_step(model, optimizer, x, target):
    """Returns the loss before the step."""
    optimizer.zero_grad()  # to None: cheaper than filling with zeros
    with torch.autocast("cpu", torch.bfloat16, enabled=arguments.precision == "bf16-mixed"):
        loss = loss_of(model(x), target)
    loss.backward()
    optimizer.step()
    return loss.detach()


def flops_of_a_sample(net, x):
    """Returns the operations of direct convolutions and products, forward and backward.

    PyTorch's counter takes a grouped convolution's gradients for those of one with a single group, and knows neither oneDNN's LSTM nor the
    CPU's attention.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode, conv_flop_count

    def of_backward(gradient, images, weight, *rest, out_shape=None, **_):
        is_transposed, wanted = rest[4], rest[7]
        return conv_flop_count(images, weight, gradient, transposed=is_transposed) * sum(wanted[:2])

    counter = FlopCounterMode(display=False, custom_mapping={torch.ops.aten.convolution_backward: of_backward})
    with counter, torch.backends.mkldnn.flags(enabled=False), sdpa_kernel(SDPBackend.MATH):
        net(x).sum().backward()
    net.zero_grad()
    return counter.get_total_flops() / len(x)


def write_start(net, batches, folder):
    """Writes the first loss, and the weights before and after some steps, in fp64: so that nothing but rounding may tell another program from it."""
    net = copy.deepcopy(net).double()
    optimizer = optimizer_of(net)

    def weights(when):
        return {f"{when}.{name}": value.clone() for name, value in net.state_dict().items()}

    tensors = weights("before")
    losses = [train_step(net, optimizer, *batches[step]) for step in range(CHECKED)]
    save_file({"loss": losses[0], **tensors, **weights("after")}, folder / "start.safetensors")


def make(folder):
    torch.manual_seed(0)
    net, (x,), dims = WORK.make()
    net.train()
    inputs, targets = drawn(x)
    save_file({"x": inputs, "target": targets}, folder / "train.safetensors")
    save_file({"x": inputs[:WORK.batch].clone(), "target": targets[:WORK.batch].clone()}, folder / "test.safetensors")  # trainings ask for one
    if not WORK.model:
        shapes = (dims,) if isinstance(net, nets.Logits) else dims
        torch.export.save(torch.export.export(net, (x,), dynamic_shapes=shapes), folder / "net.pt2")
    if arguments.net in IN_JAX:
        write_start(net, Ready(inputs.double() if inputs.is_floating_point() else inputs, targets), folder)
    parameters = sum(parameter.numel() for parameter in net.parameters())
    print(json.dumps({"images": x.dim() == 4, "parameters": parameters, "flops_of_a_sample": flops_of_a_sample(net, inputs[:2])}))


def roof():
    """Prints the instructions that PyTorch takes, operations a second of large products, and bytes read and written a second by a large copy."""
    torch.set_num_threads(os.cpu_count())

    def seconds_of(call):
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    flops, kind = 0, torch.bfloat16 if arguments.precision == "bf16-mixed" else torch.float32
    for size in (512, 1024, 2048):
        factor = torch.randn(size, size).to(kind)
        seconds = [seconds_of(lambda: factor @ factor)]
        if seconds[0] < 1:  # PyTorch has no quick one of bf16 for some processors
            seconds += [seconds_of(lambda: factor @ factor) for _ in range(7)]
        flops = max(flops, 2 * size**3 / min(seconds))
        if len(seconds) == 1:
            break
    many = torch.randn(1 << 26)
    other = torch.empty_like(many)
    copied = 8 * many.numel() / min(seconds_of(lambda: other.copy_(many)) for _ in range(7))
    print(json.dumps({"instructions": torch.backends.cpu.get_cpu_capability(), "flops": flops, "copied": copied}))


def spread(net, world):
    """Returns the net as the ranks train it together."""
    if world == 1:
        return net
    if not arguments.sharded:
        return DistributedDataParallel(net, gradient_as_bucket_view=True, static_graph=True)
    return shared_by_blocks(net, world)


def peak_bytes():
    """Returns the most that the processes of all ranks have had resident."""
    peak = torch.tensor([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024])
    dist.all_reduce(peak)
    return peak.item()


def train():
    torch.set_flush_denormal(True)  # as Lockstep does
    torch.set_num_threads(arguments.threads)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net, (x,), _ = WORK.make()
    data = Augmented(world) if WORK.augment == "timm" else Ready(*drawn(x), rank, world)
    if arguments.channels_last:
        net = mnist.channels_last(net)
    model = spread(net.train(), world)
    if arguments.compile:
        model = torch.compile(model)
    optimizer, seconds, step = optimizer_of(net), [], 0
    steps_of_line = arguments.steps // arguments.lines
    for _ in range(arguments.lines):
        start = time.perf_counter()
        for _ in range(steps_of_line):
            train_step(model, optimizer, *data[step])
            step += 1
        seconds.append((time.perf_counter() - start) / steps_of_line)
    peak = peak_bytes()
    if rank == 0:
        print(json.dumps({"seconds": seconds, "peak_bytes": peak}))
    leave()


def main():
    if arguments.roof:
        roof()
    elif arguments.make:
        make(Path(arguments.make))
    else:
        train()


if __name__ == "__main__":
    main()
