#!/usr/bin/env python3
"""Writes the files that Python's torch.save and safetensors make, for tests/formats/weights: weights.py [FOLDER].

Made with PyTorch 2.15.0 and safetensors 0.8.0. expected.txt says what is in them, a line a tensor:

    FILE NAME TYPE SHAPE BYTES     SHAPE as 2x3 or - of a scalar; BYTES in hexadecimal, row-major, or - if there are none
"""

import argparse
import os
import sys
import warnings
from collections import OrderedDict, defaultdict
from pathlib import Path

import numpy
import safetensors.torch
import torch

# Python's own order, so that the file can also be compared byte for byte.
TYPES = [
    "bool", "uint8", "int8", "float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "int16", "uint16", "float16", "bfloat16", "int32", "uint32", "float32", "complex64", "float64", "int64", "uint64",
]


def counted(shape, dtype=torch.float32, start=1):
    """Returns a tensor whose bytes count up; those of a bool alternate."""
    count = torch.Size(shape).numel()
    if dtype is torch.bool:
        return (torch.arange(start, start + count) % 2 == 1).reshape(shape)
    size = torch.empty((), dtype=dtype).element_size()
    data = (torch.arange(start, start + count * size) % 251).to(torch.uint8)
    return data.view(dtype).reshape(shape)


def plain_bytes(tensor):
    return bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist())


def flat(value, name=""):
    """Yields names joined by dots and tensors."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from flat(item, f"{name}.{key}" if name else str(key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from flat(item, f"{name}.{index}")


def views():
    base = counted((4, 6))
    return OrderedDict(
        base=base, transposed=base.t(), row=base[2], column=base[:, 1], every_second=base[::2, ::3],
        expanded=base[0, :3].expand(2, 3), channels_last=counted((2, 3, 2, 2)).contiguous(memory_format=torch.channels_last),
        scalar=base[3, 5], nothing=base[4:], one_of_many=base.as_strided((1, 2), (1000, 6)))


def trained():
    """Returns the state of a small model and its optimizer after one step."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model(counted((4, 2)).nan_to_num()).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "best": 0.5, "name": "né",
            "done": False, "none": None, "far": -(2**40)}


def others():
    """Returns a checkpoint as the training scripts of timm and torchvision save them."""
    args = argparse.Namespace(lr=0.1, device=torch.device("cpu"), output=Path("out"), betas=(0.9, 0.999))
    model = torch.nn.Linear(2, 3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(torch.optim.SGD(model.parameters(), 0.1), 0.1, 10)
    return {"epoch": 3, "arch": "linear", "state_dict": OrderedDict(weight=counted((3, 2)), bias=counted((3,))), "args": args,
            "lr_scheduler": scheduler.state_dict(), "metric": numpy.float64(0.5), "device": torch.device("cpu"),
            "history": defaultdict(list, loss=[1.0]), "classes": {"a", "b"}, "pairs": {("a", 1): 2}, "dtype": torch.float16,
            "random": numpy.random.RandomState(0).get_state(), "large": 2**80, "raw": b"raw", "shape": torch.Size([2])}


class Hostile:
    def __reduce__(self):
        return os.system, ("touch lockstep-was-executed",)


def torch_files():
    types = OrderedDict((name, counted((2, 3), getattr(torch, name))) for name in TYPES)
    parameter = torch.nn.Parameter(counted((2, 2)))
    yield "types.pt", types, {}
    yield "complex128.pt", {"z": counted((2,), torch.complex128)}, {}
    yield "single.pt", {"weight": counted((3,))}, {}
    yield "parameter.pt", OrderedDict(weight=parameter, tied=parameter), {}
    yield "views.pt", views(), {}
    yield "nested.pt", {"a": {"b": {"c": counted((1,))}}, "list": [counted((2,)), {"x": counted((3,))}], 7: counted((1,))}, {}
    yield "checkpoint.pt", trained(), {}
    yield "protocol4.pt", trained(), {"pickle_protocol": 4}
    yield "protocol5.pt", views(), {"pickle_protocol": 5}
    yield "others.pt", others(), {}
    yield "others4.pt", others(), {"pickle_protocol": 4}
    yield "legacy.pt", {"weight": counted((3,))}, {"_use_new_zipfile_serialization": False}
    yield "hostile.pt", {"weight": counted((3,)), "x": Hostile()}, {}
    yield "tensor.pt", counted((3,)), {}
    yield "empty.pt", {}, {}


def line(file, name, tensor):
    shape = "x".join(map(str, tensor.shape)) or "-"
    return f"{file} {name} {str(tensor.dtype)[6:]} {shape} {plain_bytes(tensor).hex() or '-'}\n"


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "formats/weights/data"
    folder.mkdir(exist_ok=True)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    with open(folder / "expected.txt", "w") as expected:
        for file, content, options in torch_files():
            torch.save(content, folder / file, **options)
            expected.writelines(line(file, name, tensor) for name, tensor in flat(content))
        types = {name: counted((2, 3), getattr(torch, name)) for name in TYPES}
        types |= {"scalar": counted(()), "nothing": counted((0, 3)), 'a "name"\n\x1f é': counted((1,))}
        safetensors.torch.save_file(types, folder / "types.safetensors", metadata={"format": "pt", "note": "é"})
        expected.writelines(line("types.safetensors", name, types[name]) for name in types if " " not in name)
    torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), folder / "script.pt")


if __name__ == "__main__":
    main()
