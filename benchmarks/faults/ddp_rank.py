"""A rank of the training that python_kills.py disturbs: ddp_rank.py FOLDER STEPS.

It trains a small net by DDP over the backend "lockstep", saves after each step, and goes on from what was saved. The folder has for each
rank a file of its process, attempt, first step and last step; what ranks learn of their peers; and at the end the weights' hash.
SIGUSR1 makes a rank compute for ever, SIGUSR2 sleep. SIGTERM does nothing: the peers are to say how soon they learn by themselves.
"""

import hashlib
import os
import signal
import sys
import time
from pathlib import Path

FOLDER, STEPS = Path(sys.argv[1]), int(sys.argv[2])
RANK, SIZE, ATTEMPT = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"))


class Mark:
    """This rank's file."""

    def __init__(self):
        self.file = os.open(FOLDER / f"rank-{RANK}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC)
        self.first = -1
        self.write(-1)

    def write(self, step):
        os.pwrite(self.file, f"{os.getpid()} {ATTEMPT} {self.first} {step}".ljust(64).encode(), 0)


def compute_for_ever(*_):
    while True:
        pass


def sleep_for_ever(*_):
    while True:
        time.sleep(1)


def train(mark):
    import torch  # only now: a rank may be struck while it loads this
    import torch.distributed as dist

    import lockstep.distributed

    dist.init_process_group("lockstep")
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
    weights, momenta = list(net.parameters()), [torch.zeros_like(weight) for weight in net.parameters()]
    path, first = FOLDER / "checkpoint", 0
    if path.exists():
        first, *saved = torch.load(path)
        with torch.no_grad():
            for tensor, value in zip([*weights, *momenta], saved):
                tensor.copy_(value)
    model = torch.nn.parallel.DistributedDataParallel(net)
    mark.first = first
    for step in range(first, STEPS):
        generator = torch.Generator().manual_seed(step * SIZE + RANK)
        model(torch.randn(16, 64, generator=generator)).square().mean().backward()
        with torch.no_grad():
            for weight, momentum in zip(weights, momenta):
                weight -= momentum.mul_(0.9).add_(weight.grad).mul(0.05)
                weight.grad = None
        if RANK == 0:
            torch.save([step + 1, *weights, *momenta], path.with_suffix(".new"))
            os.replace(path.with_suffix(".new"), path)
        lockstep.report_step(step + 1)
        mark.write(step + 1)
    dist.barrier()
    if RANK == 0:
        (FOLDER / "result").write_text(hashlib.sha256(b"".join(weight.detach().numpy().tobytes() for weight in weights)).hexdigest())
    dist.destroy_process_group()


def main():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, compute_for_ever)
    signal.signal(signal.SIGUSR2, sleep_for_ever)
    mark = Mark()
    try:
        train(mark)
    except Exception as failure:
        now = time.monotonic()
        (FOLDER / f"noticed-{ATTEMPT}-{RANK}").write_text(f"{now} {failure}")
        raise


main()
