#!/usr/bin/env python3
"""Times timm's augmentation in Lockstep and in timm itself on one core, in turn, and prints the ratio of medians.

    python3 benchmarks/augment.py --peer-python VENV/bin/python         # 32 x 32 images and JPEGs to 224, 7 rounds each

Both turn the same images into normalised numbers: 512 of 32 x 32 in memory, 64 JPEG files of 500 x 375 (4:2:0, quality 90)
in memory, and the same 64 decoded before, as later epochs find them where images are kept (--cache-decoded). The pictures are drawn here, from waves and noise. The peer runs with one thread, with default malloc
and with glibc's malloc tuned; its better median counts. Seconds are CPU time (on an idle machine the same as wall-clock
time), so other programs on a busy core are not counted. Needs a Python with torch 2.15, timm 1.0.31, Pillow 12 and numpy,
and Lockstep built by ./dev build. The machine's load is printed beside each figure.
"""

import os
import statistics
import tempfile
from pathlib import Path

from commands import ROOT, cpu_model, last_json, output_of, parser_of, ratio_of

MALLOC = ("MALLOC_MMAP_THRESHOLD_=1073741824", "MALLOC_TRIM_THRESHOLD_=1073741824", "MALLOC_TOP_PAD_=67108864")

# Run by the peer's Python, which has numpy and Pillow. Octaves of noise make pictures that compress like photographs.
MAKE_IMAGES = """
import io, sys
import numpy
from PIL import Image

numbers = numpy.random.default_rng(1)

def picture(width, height):
    total = numpy.zeros((height, width, 3))
    for cells, strength in ((3, 70), (9, 45), (40, 20), (150, 9)):
        noise = numbers.uniform(-1, 1, (cells * height // width + 1, cells, 3)) + numbers.uniform(-1, 1, (1, cells, 1))
        for c in range(3):
            layer = Image.fromarray(noise[:, :, c].astype(numpy.float32)).resize((width, height), Image.Resampling.BICUBIC)
            total[:, :, c] += strength * numpy.asarray(layer)
    return Image.fromarray((120 + total + numbers.normal(0, 6, total.shape)).clip(0, 255).astype(numpy.uint8))

with open(sys.argv[1] + "/pixels", "wb") as file:
    for _ in range(512):
        file.write(picture(128, 128).resize((32, 32), Image.Resampling.BICUBIC).tobytes())
with open(sys.argv[1] + "/jpegs", "wb") as file:
    for _ in range(64):
        data = io.BytesIO()
        picture(500, 375).save(data, "JPEG", quality=90, subsampling="4:2:0")
        file.write(len(data.getvalue()).to_bytes(4, "little") + data.getvalue())
"""


def parse_arguments():
    parser = parser_of(__doc__, "augment_benchmark")
    parser.add_argument("--peer-python", required=True, help="a Python that can import timm 1.0.31 and Pillow 12")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2, help="of each measurement")
    parser.add_argument("--core", default="0", help="the core that all run on")
    return parser.parse_args()


def images_per_second(command, core, variables=()):
    return last_json(output_of(["taskset", "-c", core, "env", "OMP_NUM_THREADS=1", *variables, *command]))["images_per_second"]


def compare(arguments, name, flags):
    flags = [*flags, "--seconds", str(arguments.seconds)]
    peer = [arguments.peer_python, str(ROOT / "benchmarks/peers/augment_timm.py"), *flags]
    rates = {"lockstep": [], "timm": [], "timm, malloc tuned": []}
    for _ in range(arguments.rounds):
        rates["lockstep"].append(images_per_second([arguments.lockstep, *flags], arguments.core))
        rates["timm"].append(images_per_second(peer, arguments.core))
        rates["timm, malloc tuned"].append(images_per_second(peer, arguments.core, MALLOC))
    print(f"{name}, {arguments.rounds} rounds, load {os.getloadavg()[0]:.2f}")
    for side, values in rates.items():
        print(f"  {side:20} {statistics.median(values):9.1f} images/s ({min(values):.1f} to {max(values):.1f})")
    best = max(("timm", "timm, malloc tuned"), key=lambda side: statistics.median(rates[side]))
    ratio, least, most = ratio_of(rates["lockstep"], rates[best])
    print(f"  ratio of medians to {best}: {ratio:.2f}; by round {least:.2f} to {most:.2f}", flush=True)


def main():
    arguments = parse_arguments()
    print(f"{cpu_model()}, core {arguments.core} of {os.cpu_count()}")
    with tempfile.TemporaryDirectory() as folder:
        output_of([arguments.peer_python, "-c", MAKE_IMAGES, folder])
        jpegs = Path(folder, "jpegs").stat().st_size / 64 / 1024
        compare(arguments, "32 x 32 to 32 x 32", ["--pixels", f"{folder}/pixels"])
        flags = ["--jpegs", f"{folder}/jpegs", "--output", "224"]
        compare(arguments, f"JPEG of {jpegs:.0f} KiB to 224 x 224", flags)
        compare(arguments, "the same JPEGs, decoded before", [*flags, "--decoded"])


if __name__ == "__main__":
    main()
