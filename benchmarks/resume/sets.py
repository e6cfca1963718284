"""Makes the small sets of images that the soak trains on."""

import random
import struct
import subprocess

SIDE, CLASSES = 28, 10


def image_of(label, source):
    """Returns noise with a bright square whose place is the class."""
    pixels = bytearray(value % 100 for value in source.randbytes(SIDE * SIDE))
    top, left = label // 4 * 7, label % 4 * 7
    for row in range(top, top + 7):
        begin = row * SIDE + left
        pixels[begin:begin + 7] = bytes(155 + value % 100 for value in source.randbytes(7))
    return bytes(pixels)


def write_idx_part(folder, stem, images, seed):
    source = random.Random(seed)
    labels = bytes(source.randrange(CLASSES) for _ in range(images))
    header = struct.pack(">IIII", 0x803, images, SIDE, SIDE)
    (folder / f"{stem}-images-idx3-ubyte").write_bytes(header + b"".join(image_of(label, source) for label in labels))
    (folder / f"{stem}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, images) + labels)


def write_idx(folder, train, test):
    """Writes a set in MNIST's format."""
    folder.mkdir(parents=True, exist_ok=True)
    write_idx_part(folder, "train", train, 1)
    write_idx_part(folder, "t10k", test, 2)


def synthesize_cifar(lockstep, folder, train, test):
    command = [lockstep, "data", "synthesize", "cifar10", str(folder), "--train", str(train), "--test", str(test)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
