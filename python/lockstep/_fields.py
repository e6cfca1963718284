"""What the file of a profile has, however it was made."""

import torch

VERSION = 3


def counted_layers(sizes, counts):
    """Returns what layers have of a sample, and the bytes that forward keeps whatever the batch is."""
    least, most = sizes[0], sizes[-1]
    layers, fixed = [], 0.0
    for small, large in zip(counts[least], counts[most]):
        saved = max(0.0, (large.saved - small.saved) / (most - least)) if most > least else large.saved / most
        fixed += max(0.0, large.saved - most * saved)
        layers.append({"name": large.name, "activation_bytes": saved, "output_bytes": large.passed / most,
                       "flops": (large.forward + large.backward) / most, "product_flops": large.products / most,
                       "parameters": large.parameters, "backward_input": [], "backward_weight": []})
    return layers, fixed


def common(layers):
    """Returns the fields that do not depend on where the model is."""
    # DistributedDataParallel's gradients lie in its buckets; one at a time is copied there.
    largest = max((parameter for layer in layers for parameter in layer["parameters"]), default=0)
    return {"input": [], "flops": sum(layer["flops"] for layer in layers),
            "product_flops": sum(layer["product_flops"] for layer in layers),
            "overheads": {"hand_over": [], "threads": [], "socket_core": 0.0, "gradient_core": 0.0,
                          "replica_bytes": largest, "socket_bytes": largest}}


def optimizer_of(model, make):
    """Returns the optimizer of the parameters that are trained. Raises ValueError where none is."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise ValueError("lockstep.profile: no parameter of the model is trained: all have requires_grad=False")
    return make(trained)


def state_bytes(optimizer):
    """Returns the bytes that it keeps for parameters; single numbers, as counts of steps, are no part of them."""
    return sum(value.nbytes for state in optimizer.state.values() for value in state.values()
               if isinstance(value, torch.Tensor) and value.dim() > 0)
