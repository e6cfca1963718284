"""The restart of `lockstep train --nproc-per-node 2 --model mnist-small` in Python PyTorch: a checkpoint every few steps, read at the start.

    python mnist_restart.py --folder RUN --interval 50       # starts its own ranks by torchrun, three restarts
    python mnist_restart.py --folder RUN --shared-store      # torchrun's default: the store outlives a group

After each step rank 0 appends a line to RUN/steps.jsonl: the restart, the step and its process. What costs a start and is not needed is left
out: torchvision, a DataLoader, compilation. A checkpoint holds model, optimizer and step; the position in the epoch is the step's.
"""

import argparse
import json
import os
from pathlib import Path

from ranks import leave, start_ranks


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--interval", type=int, default=50, help="steps between checkpoints")
    parser.add_argument("--batch-size", type=int, default=128, help="per rank")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--shared-store", action="store_true", help="use the agent's store, also after a restart")
    return parser.parse_args()


arguments = parse_arguments()
if "RANK" not in os.environ:
    # In the agent's store the new ranks may find the addresses of dead ones: Gloo then cannot connect.
    own_store = {} if arguments.shared_store else {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    # By default torchrun checks for dead workers every 0.1 s.
    start_ranks(2, "--monitor-interval", "0.02", "--max-restarts", "3", **own_store)

import torch
import torch.distributed as dist
from mnist import make_net, read_set
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RANK, WORLD, RESTART = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"))
CHECKPOINT = arguments.folder / "checkpoint.pt"


def restore(net, optimizer):
    if not CHECKPOINT.exists():
        return 0
    state = torch.load(CHECKPOINT, weights_only=True)
    net.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"]


def save(net, optimizer, step):
    aside = CHECKPOINT.with_suffix(".new")
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, aside)
    os.replace(aside, CHECKPOINT)


def batches_from(step, images, labels):
    """Yields batches endlessly; the order depends only on the epoch, as a DistributedSampler's."""
    per_epoch = len(images) // WORLD // arguments.batch_size
    while True:
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(step // per_epoch))[RANK::WORLD]
        for batch in order.split(arguments.batch_size)[step % per_epoch:per_epoch]:
            yield images[batch].view(-1, 1, 28, 28).float().div_(255), labels[batch]
            step += 1


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    images, labels = read_set(arguments.data, "train")
    torch.manual_seed(42)
    net = make_net("small")
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, eps=1e-7, fused=True)
    step = restore(net, optimizer)
    model = DistributedDataParallel(net, gradient_as_bucket_view=True, static_graph=True)
    with open(arguments.folder / "steps.jsonl", "a", buffering=1) as lines:
        for batch, target in batches_from(step, images, labels):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(batch), target).backward()
            optimizer.step()
            step += 1
            if RANK == 0:
                lines.write(json.dumps({"restart": RESTART, "step": step, "process": os.getpid()}) + "\n")
                if step % arguments.interval == 0:
                    save(net, optimizer, step)
    leave()


main()
