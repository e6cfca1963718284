"""The backend "lockstep" of torch.distributed: collectives of CPU tensors through shared memory.

    import lockstep.distributed
    torch.distributed.init_process_group("lockstep")

Where the package is installed, init_process_group() finds the backend without the import.
"""

import atexit
import sys
from pathlib import Path

import torch.distributed as dist


def _load():
    """Returns the extension, which is compiled for one version of Python."""
    try:
        import lockstep._backend as backend  # after torch, whose libraries it needs
    except ModuleNotFoundError as error:
        there = ", ".join(path.name for path in Path(__file__).parent.glob("_backend.*")) or "no extension"
        raise ImportError(f"lockstep.distributed: the package has {there}, not the extension for Python "
                          f"{sys.version_info.major}.{sys.version_info.minor}; install a wheel that this Python has built, by "
                          "LOCKSTEP_PYTHON=PYTHON ./dev wheel. All else of the package works") from error
    return backend


def register():
    """Makes torch.distributed know the backend; a second call does nothing."""
    if hasattr(dist.Backend, "LOCKSTEP"):
        return
    backend = _load()

    def create(group, _):
        return backend.create(group.store, group.group_rank, group.group_size, group.timeout, group.group_id)

    dist.Backend.register_backend("lockstep", create, extended_api=True, devices=["cpu"])
    atexit.register(backend.close_threads)  # a thread that frees a tensor while Python ends would abort the process


register()
