#!/usr/bin/env python3
"""Times how many images a second one core augments with timm: augment_timm.py --pixels FILE | --jpegs FILE.

The settings are those of the study: color_jitter 0.4 (which RandAugment turns off), rand-m9-mstd0.5-inc1, bicubic random
resized crop, flip, normalise, random erasing 0.25 in mode pixel. PIL images in memory, or JPEG bytes, to a normalised
tensor, per second of CPU time. benchmarks/augment.py makes the files and runs this beside Lockstep.
"""

import argparse
import io
import json
import time
from pathlib import Path

import torch
from PIL import Image
from timm.data import create_transform


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pixels", help="a file of images of 3 channels, byte by byte")
    parser.add_argument("--jpegs", help="a file of JPEGs, each after its length")
    parser.add_argument("--decoded", action="store_true", help="decode the JPEGs before, as a cache of images does")
    parser.add_argument("--side", type=int, default=32, help="of the images of --pixels")
    parser.add_argument("--output", type=int, default=32, help="side of the output images")
    parser.add_argument("--seconds", type=float, default=2, help="to measure")
    return parser.parse_args()


def samples(arguments):
    """Returns functions that return an image each."""
    if arguments.pixels:
        data, size = Path(arguments.pixels).read_bytes(), arguments.side**2 * 3
        shape = (arguments.side, arguments.side)
        images = [Image.frombytes("RGB", shape, data[at:at + size]) for at in range(0, len(data), size)]
        return [lambda image=image: image for image in images]
    data, at, files = Path(arguments.jpegs).read_bytes(), 0, []
    while at < len(data):
        size = int.from_bytes(data[at:at + 4], "little")
        files.append(data[at + 4:at + 4 + size])
        at += 4 + size
    if arguments.decoded:
        return [lambda image=Image.open(io.BytesIO(file)).convert("RGB"): image for file in files]
    return [lambda file=file: Image.open(io.BytesIO(file)).convert("RGB") for file in files]


def main():
    arguments = parse_arguments()
    torch.set_num_threads(1)
    transform = create_transform(
        input_size=(3, arguments.output, arguments.output), is_training=True, color_jitter=0.4,
        auto_augment="rand-m9-mstd0.5-inc1", interpolation="bicubic", re_prob=0.25, re_mode="pixel", re_count=1)
    images, done = samples(arguments), 0
    for sample in images:
        transform(sample())
    start = time.process_time()
    while (seconds := time.process_time() - start) < arguments.seconds:
        for sample in images:
            transform(sample())
        done += len(images)
    print(json.dumps({"images_per_second": done / seconds}))


if __name__ == "__main__":
    main()
