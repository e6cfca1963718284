"""Mutated pickles read as Python reads them, or not at all: 5,000, seeded, with right checksums and sizes.

The reference is Python's own unpickler with names resolved to a few harmless functions, tensors made by
torch.as_strided. Lockstep may refuse what Python reads (it is stricter), but what it reads must be the same.
"""

import collections
import io
import json
import pickle
import pickletools
import random
import struct
import tempfile
import unittest
import zipfile
import zlib
from pathlib import Path

import torch

from programs import weight_values

MUTATIONS = 5000
SEEDS = ["views.pt", "checkpoint.pt", "nested.pt", "parameter.pt", "types.pt", "protocol5.pt"]
DATA = Path(__file__).resolve().parents[1] / "formats" / "weights" / "data"
NUMBERS = [0, 1, 2, 3, 4, 6, 12, 24, 255, 256, 65535, 2**31 - 1]


def records(name):
    with zipfile.ZipFile(DATA / name) as archive:
        return {entry.split("/", 1)[1]: archive.read(entry) for entry in archive.namelist()}


def pieces(data):
    """Cuts a pickle into its opcodes with their arguments."""
    places = [place for _, _, place in pickletools.genops(data)] + [len(data)]
    return [data[begin:end] for begin, end in zip(places, places[1:])]


def mutate(opcodes, dice):
    """Changes one or two opcodes: another argument, repeated, left out, swapped, replaced, or a byte within."""
    for _ in range(dice.choice((1, 1, 2))):
        at = dice.randrange(1, len(opcodes))
        other = opcodes[dice.randrange(1, len(opcodes))]
        match dice.randrange(7):
            case 0:
                opcodes[at] = other
            case 1:
                opcodes.insert(at, other)
            case 2:
                del opcodes[at]
            case 3:
                opcodes[at:at + 2] = reversed(opcodes[at:at + 2])
            case 4:
                numbers = [place for place, opcode in enumerate(opcodes) if opcode[:1] in b"KMJ"]
                opcodes[dice.choice(numbers)] = b"J" + struct.pack("<i", dice.choice(NUMBERS))
            case 5:
                gets = [place for place, opcode in enumerate(opcodes) if opcode[:1] == b"h"]
                opcodes[dice.choice(gets)] = b"h" + bytes([dice.randrange(64)])
            case _:
                piece = bytearray(opcodes[at])
                piece[dice.randrange(len(piece))] = dice.randrange(256)
                opcodes[at] = bytes(piece)
    return b"".join(opcodes)


class Refused(Exception):
    pass


class Reference(pickle.Unpickler):
    """Reads a pickle of torch.save; storages are its `records`."""

    def __init__(self, data, parts):
        super().__init__(io.BytesIO(data))
        self.parts = parts

    def find_class(self, module, name):
        known = {
            ("collections", "OrderedDict"): collections.OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): self.rebuild,
            ("torch._utils", "_rebuild_tensor_v3"): self.rebuild_typed,
            ("torch._utils", "_rebuild_parameter"): lambda data, requires_grad, hooks: data,
        }
        if (module, name) in known:
            return known[module, name]
        if module in ("torch", "torch.storage"):
            return getattr(torch, name)
        raise Refused(module, name)

    def persistent_load(self, identity):
        _, kind, key, _, size = identity
        data = self.parts[f"data/{key}"]
        dtype = torch.uint8 if kind is torch.UntypedStorage else kind.dtype
        if len(data) != size * dtype.itemsize:
            raise Refused("size")
        return torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)

    @staticmethod
    def rebuild(storage, offset, size, stride, *_):
        return storage.as_strided(size, stride, offset)

    @staticmethod
    def rebuild_typed(storage, offset, size, stride, requires_grad, hooks, dtype, *_):
        return storage.view(dtype).as_strided(size, stride, offset)


def spelled(value):
    """Spells a value as weight_values.cpp does."""
    if isinstance(value, float):
        return {"float": struct.unpack("<Q", struct.pack("<d", value))[0]}
    if isinstance(value, (list, tuple)):
        return {"list": [spelled(item) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[key, spelled(item)] for key, item in value.items()]}
    if isinstance(value, torch.Tensor):
        plain = value.detach().clone(memory_format=torch.contiguous_format)  # contiguous() keeps odd strides of size 1
        data = plain.reshape(-1).view(torch.uint8).numpy().tobytes()
        return {"tensor": [str(value.dtype)[6:], list(value.shape), zlib.crc32(data)]}
    return value


class MutationRoundTrip(unittest.TestCase):
    def write(self, path, parts):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            for name, data in parts.items():
                archive.writestr(zipfile.ZipInfo(f"x/{name}"), data)

    def test_mutated_pickles_read_as_python_reads_them_or_not_at_all(self):
        dice = random.Random(5)
        seeds = [records(name) for name in SEEDS]
        cases = []
        with tempfile.TemporaryDirectory() as folder:
            for number in range(MUTATIONS):
                parts = dict(dice.choice(seeds))
                parts["data.pkl"] = mutate(pieces(parts["data.pkl"]), dice)
                path = Path(folder) / f"{number}.pt"
                self.write(path, parts)
                cases.append((path, parts))
            answers = weight_values([path for path, _ in cases])
        self.assertEqual(len(answers), MUTATIONS)
        read = 0
        for (path, parts), answer in zip(cases, answers):
            if "refused" in answer or '"other":' in json.dumps(answer):  # which the reference does not make
                continue
            read += 1
            with self.subTest(path.name):
                self.assertEqual(answer["value"], spelled(Reference(parts["data.pkl"], parts).load()))
        self.assertGreater(read, MUTATIONS // 50)
        print(f"{read} of {MUTATIONS} mutated pickles read, each as Python reads it")

    def test_the_unmutated_read_as_python_reads_them(self):
        for name in SEEDS:
            parts = records(name)
            with self.subTest(name):
                value = weight_values([DATA / name])[0]["value"]
                self.assertEqual(value, spelled(Reference(parts["data.pkl"], parts).load()))


if __name__ == "__main__":
    unittest.main()
