"""Starts the ranks of a peer by torchrun."""

import os
import sys

# Read by glibc at process start, hence set before the ranks begin. Without them a step takes up to twice as long;
# jemalloc with dirty_decay_ms:-1 does as well.
MALLOC = {"GLIBC_TUNABLES": os.environ.get(
    "GLIBC_TUNABLES",
    "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=8589934592:"
    "glibc.malloc.top_pad=268435456:glibc.malloc.hugetlb=1")}


def start_ranks(count, *flags, **variables):
    """Becomes torchrun with these flags, which starts the running script as so many ranks, of one thread unless the variables say otherwise."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", *flags, "--nproc-per-node", str(count), *sys.argv]
    if count == 1 and not flags:  # without the seconds that torchrun takes
        environment |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}
        command = [sys.executable, *sys.argv]
    os.execve(sys.executable, command, environment)


def leave():
    """Ends this rank's process, once all ranks are here.

    An ordinary end is sometimes an abort: the first optimizer makes PyTorch import functions whose default argument is the group, so
    that it outlives destroy_process_group(), and with it Gloo's threads: one that lets a tensor go while Python ends is terminated.
    """
    import torch.distributed as dist

    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


def shared_by_blocks(net, world):
    """Gives each rank a part of every parameter by FSDP2, in place: each block of the net's lists is a unit, the rest another."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (world,))
    for blocks in [module for module in net.modules() if isinstance(module, torch.nn.ModuleList)]:
        for block in blocks:
            fully_shard(block, mesh=mesh)
    return fully_shard(net, mesh=mesh)
