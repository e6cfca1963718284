"""The backend "lockstep" of torch.distributed: collectives of CPU tensors through shared memory.

    import lockstep.distributed
    torch.distributed.init_process_group("lockstep")

Where the package is installed, init_process_group() finds the backend without the import.
"""

import torch.distributed as dist


def register():
    """Makes torch.distributed know the backend; a second call does nothing."""
    if hasattr(dist.Backend, "LOCKSTEP"):
        return
    from lockstep import _backend  # after torch, whose libraries it needs

    def create(group, _):
        return _backend.create(group.store, group.group_rank, group.group_size, group.timeout, group.group_id)

    dist.Backend.register_backend("lockstep", create, extended_api=True, devices=["cpu"])


register()
