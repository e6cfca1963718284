#!/usr/bin/env python3
"""Writes what Pillow, timm and torchvision make of images, for tests/data/transforms: transforms.py [FOLDER].

Made with Pillow 12.3.0 (13 refuses to keep 0 bits in posterize), timm 1.0.31, torchvision 0.29.2. Images come from
formulas, so that C++ can make the same: see image(). Files:

    bytes.txt      OPERATION WIDTH HEIGHT CHANNELS ARGUMENT... HASH   FNV-1a, 64 bits, of what becomes of all contents
    arguments.txt  OPERATION INCREASING NEGATED MAGNITUDE ARGUMENT    what timm gives an operation for a magnitude
    draws.txt      QUANTITY DRAWS MEAN DEVIATION                      of timm's own random numbers

No byte may differ, so hashes are enough.
"""

import random
import sys
from pathlib import Path

import numpy
import torch
from formulas import words
from PIL import Image
from timm.data import auto_augment, create_transform
from timm.data.random_erasing import RandomErasing
from timm.data.transforms import RandomResizedCropAndInterpolation
from torchvision.transforms import ColorJitter
from torchvision.transforms import functional

FILL = (124, 116, 104)
FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
CONTENTS = ["noise", "ramps", "flat", "dull", "checks", "photo"]
SIZES = [(32, 32), (33, 17), (5, 7), (3, 3), (2, 3), (1, 1), (64, 40)]
DRAWS = 40000


def folded(x):
    """Goes up to 255 and down again."""
    x = x % 511
    return numpy.where(x > 255, 510 - x, x)


def image(content, width, height, channels):
    """Makes an image by a formula of the place (x, y, c) and of the element's index, i."""
    i = numpy.arange(width * height * channels).reshape(height, width, channels)
    c, x, y = i % channels, i // channels % width, i // channels // width
    noise = (words(i.size) >> numpy.uint64(56)).astype(numpy.int64).reshape(i.shape)
    values = {
        "noise": noise,
        "ramps": folded(7 * x + 3 * y + 85 * c),
        "flat": 90 + 60 * c + 0 * i,
        "dull": 80 + 20 * c + noise % 40,
        "checks": 255 * ((x // 3 + y // 2 + c) % 2),
        "photo": numpy.minimum(255, folded(2 * x + y * (c + 1) // 2 + 40 * c) * 3 // 4 + noise % 16),
    }[content]
    values = values.astype(numpy.uint8)
    return Image.fromarray(values[:, :, 0] if channels == 1 else values)


def fnv(data):
    """Returns the 64-bit hash FNV-1a in hexadecimal."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def affine(function):
    return lambda picture, *numbers, filter: function(picture, *numbers, fillcolor=FILL, resample=FILTERS[filter])


def resize(picture, width, height, filter):
    return picture.resize((int(width), int(height)), FILTERS[filter])


def resized_crop(picture, left, top, width, height, to_width, to_height, filter):
    mode = functional.InterpolationMode(filter)
    return functional.resized_crop(picture, top, left, height, width, [to_height, to_width], mode)


def padded_crop(picture, padding, left, top, width, height):
    return functional.crop(functional.pad(picture, padding), top, left, height, width)


def evaluation(picture, width, height, fraction):
    """Returns what timm shows of an image in evaluation, before it is normalised."""
    transform = create_transform((3, height, width), crop_pct=fraction, interpolation="bicubic", normalize=False)
    return Image.fromarray(transform(picture).permute(1, 2, 0).numpy())


OPERATIONS = {
    "auto_contrast": auto_augment.auto_contrast,
    "equalize": auto_augment.equalize,
    "invert": auto_augment.invert,
    "posterize": auto_augment.posterize,
    "solarize": auto_augment.solarize,
    "solarize_add": auto_augment.solarize_add,
    "saturation": auto_augment.color,
    "contrast": auto_augment.contrast,
    "brightness": auto_augment.brightness,
    "sharpness": auto_augment.sharpness,
    "flip": functional.hflip,
    "padded_crop": padded_crop,
    "evaluation": evaluation,
}
for kind in FILTERS:
    bound = lambda function, kind=kind: lambda picture, *numbers: function(picture, *numbers, filter=kind)
    OPERATIONS[f"resize_{kind}"] = bound(resize)
    OPERATIONS[f"resized_crop_{kind}"] = bound(resized_crop)
    OPERATIONS[f"rotate_{kind}"] = bound(affine(auto_augment.rotate))
    OPERATIONS[f"shear_x_{kind}"] = bound(affine(auto_augment.shear_x))
    OPERATIONS[f"shear_y_{kind}"] = bound(affine(auto_augment.shear_y))
    OPERATIONS[f"translate_x_{kind}"] = bound(affine(auto_augment.translate_x_rel))
    OPERATIONS[f"translate_y_{kind}"] = bound(affine(auto_augment.translate_y_rel))

FACTORS = [0, 0.1, 0.19, 0.6, 0.9999, 1, 1.0001, 1.4, 1.81, 1.9, 2.5]
ARGUMENTS = {
    "auto_contrast": [()],
    "equalize": [()],
    "invert": [()],
    "posterize": [(bits,) for bits in range(0, 10)],
    "solarize": [(threshold,) for threshold in (0, 1, 26, 128, 255, 256)],
    "solarize_add": [(addition,) for addition in (0, 1, 99, 110, 128)],
    "saturation": [(factor,) for factor in FACTORS],
    "contrast": [(factor,) for factor in FACTORS],
    "brightness": [(factor,) for factor in FACTORS],
    "sharpness": [(factor,) for factor in FACTORS],
    "rotate": [(angle,) for angle in (-30, -27.3, -0.01, 0, 1e-9, 3, 24.75, 30, 45, 90, 180, 200.5)],
    "shear": [(factor,) for factor in (-0.3, -0.2713, 0, 0.01, 0.25, 0.3)],
    "translate": [(share,) for share in (-0.45, -0.4, -0.25, -0.0333, 0, 0.1, 0.40625, 0.45, 1.5)],
    "resize": [(32, 32), (1, 1), (7, 50), (33, 17), (100, 3), (16, 16), (31, 33)],
}


def arguments_of(operation):
    name = operation.removesuffix("_bilinear").removesuffix("_bicubic")
    return ARGUMENTS.get(name) or ARGUMENTS.get(name.split("_")[0], [])


def cases():
    """Gives operation, width, height, channels, arguments."""
    for operation in OPERATIONS:
        for width, height in SIZES:
            for arguments in arguments_of(operation):
                yield operation, width, height, 3, arguments
    for width, height in ((250, 187), (187, 250)):
        yield "resize_bicubic", width, height, 3, (112, 112)
        yield "resize_bilinear", width, height, 3, (112, 112)
        yield "resized_crop_bicubic", width, height, 3, (31, 77, 149, 110, 112, 112)
        yield "resized_crop_bilinear", width, height, 3, (80, 5, 75, 75, 112, 112)
        for output in ((112, 112, 0.875), (96, 64, 0.9), (64, 96, 0.9)):
            yield "evaluation", width, height, 3, output
    for box in ((0, 0, 20, 30), (10, 5, 54, 35), (63, 39, 1, 1), (0, 0, 64, 40), (7, 3, 32, 32)):
        yield "resized_crop_bicubic", 64, 40, 3, (*box, 32, 32)
        yield "resized_crop_bilinear", 64, 40, 3, (*box, 32, 32)
    yield "rotate_bicubic", 120, 112, 3, (-26.1,)
    yield "shear_x_bicubic", 120, 112, 3, (0.28,)
    yield "shear_y_bicubic", 120, 112, 3, (-0.26,)
    yield "translate_x_bicubic", 120, 112, 3, (0.4035,)
    yield "translate_y_bicubic", 120, 112, 3, (-0.41,)
    yield "resize_bicubic", 3, 301, 3, (5, 40)
    yield "resize_bicubic", 2, 201, 3, (5, 300)
    yield "resize_bicubic", 2000, 2, 3, (20, 2)
    for width, height in SIZES:
        yield "flip", width, height, 3, ()
        yield "flip", width, height, 1, ()
        yield "resize_bicubic", width, height, 1, (32, 20)
        yield "resize_bilinear", width, height, 1, (9, 32)
        yield "evaluation", width, height, 3, (32, 32, 1.0)
    for left, top in ((0, 0), (4, 4), (8, 8), (3, 6)):
        yield "padded_crop", 32, 32, 3, (4, left, top, 32, 32)
        yield "padded_crop", 28, 28, 1, (4, left, top, 28, 28)


def write_bytes(path):
    with path.open("w") as file:
        for operation, width, height, channels, arguments in cases():
            images = [image(content, width, height, channels) for content in CONTENTS]
            made = b"".join(OPERATIONS[operation](picture, *arguments).tobytes() for picture in images)
            numbers = "".join(f" {float(number)!r}" for number in arguments)
            file.write(f"{operation} {width} {height} {channels}{numbers} {fnv(made)}\n")


AUGMENT_NAMES = {
    "AutoContrast": "auto_contrast", "Equalize": "equalize", "Invert": "invert", "Rotate": "rotate",
    "Posterize": "posterize", "Solarize": "solarize", "SolarizeAdd": "solarize_add", "Color": "saturation",
    "Contrast": "contrast", "Brightness": "brightness", "Sharpness": "sharpness", "ShearX": "shear_x",
    "ShearY": "shear_y", "TranslateXRel": "translate_x", "TranslateYRel": "translate_y",
}


def with_sign(negated, function):
    """Calls a function while random.random() decides that way."""
    kept, auto_augment.random.random = random.random, lambda: 0.9 if negated else 0.1
    try:
        return function()
    finally:
        auto_augment.random.random = kept


def write_arguments(path):
    with path.open("w") as file:
        for increasing in (False, True):
            names = auto_augment.rand_augment_choices("", increasing)
            for name in names:
                argument = auto_augment.LEVEL_TO_ARG[name]
                if argument is None:
                    continue
                for negated in (False, True):
                    for magnitude in (0, 0.05, 2.5, 5, 7.4999, 8.3, 9, 9.5, 9.99, 10, 12):
                        value = with_sign(negated, lambda: argument(magnitude, {}))[0]
                        shown = AUGMENT_NAMES[name.removesuffix("Increasing")]
                        file.write(f"{shown} {increasing:d} {negated:d} {magnitude!r} {float(value)!r}\n")


def crop_draws(size):
    crops = RandomResizedCropAndInterpolation(224, interpolation="bicubic")
    boxes = [crops.get_params(Image.new("RGB", size), crops.scale, crops.ratio) for _ in range(DRAWS)]
    top, left, height, width = numpy.array(boxes, dtype=float).T
    name = f"crop_{size[0]}x{size[1]}"
    yield f"{name}_share", width * height / (size[0] * size[1])
    yield f"{name}_log_ratio", numpy.log(width / height)
    yield f"{name}_left", left
    yield f"{name}_top", top


def step_draws():
    """Records what timm's RandAugment applies and with which magnitude."""
    seen = []
    transform = auto_augment.rand_augment_transform("rand-m9-mstd0.5-inc1", dict(img_mean=FILL))
    for op in transform.ops:
        op.aug_fn = lambda picture, *arguments, name=op.name, **_: seen.append((name, arguments)) or picture
    counts = []
    for _ in range(DRAWS):
        before = len(seen)
        transform(None)
        counts.append(len(seen) - before)
    yield "steps", numpy.array(counts, dtype=float)
    for name in auto_augment.rand_augment_choices("", True):
        own = [arguments for other, arguments in seen if other == name]
        shown = AUGMENT_NAMES[name.removesuffix("Increasing")]
        yield f"{shown}_share", numpy.array([other == name for other, _ in seen], dtype=float)
        if own[0]:
            yield f"{shown}_argument", numpy.array([arguments[0] for arguments in own], dtype=float)


def erasing_draws(size, count):
    """Erases ones in mode const and looks at the zeros; in mode pixel, at the numbers."""
    shares, tops, pixels = [], [], []
    constant = RandomErasing(0.25, mode="const", max_count=count, min_count=count, device="cpu")
    pixel = RandomErasing(1, mode="pixel", device="cpu")
    for _ in range(DRAWS // 4):
        rows = (constant(torch.ones(1, size[1], size[0])) == 0).float()[0]
        shares.append(rows.mean().item())
        if rows.any():
            tops.append(rows.any(1).float().argmax().item())
        pixels.append(pixel(torch.zeros(1, size[1], size[0]))[0, size[1] // 2, size[0] // 2].item())
    name = f"erasing_{size[0]}x{size[1]}_{count}"
    yield f"{name}_share", numpy.array(shares)
    yield f"{name}_any", numpy.array(shares) > 0
    yield f"{name}_top", numpy.array(tops, dtype=float)
    yield f"{name}_pixel", numpy.array(pixels)


def jitter_draws():
    jitter = ColorJitter(0.4, 0.4, 0.4)
    drawn = [jitter.get_params(jitter.brightness, jitter.contrast, jitter.saturation, None) for _ in range(DRAWS // 4)]
    yield "jitter_brightness", numpy.array([factors[1] for factors in drawn])


def write_draws(path):
    random.seed(1)
    numpy.random.seed(1)
    torch.manual_seed(1)
    with path.open("w") as file:
        for draws in (crop_draws((32, 32)), crop_draws((500, 375)), crop_draws((400, 100)), step_draws(),
                      erasing_draws((32, 32), 1), erasing_draws((40, 20), 2), jitter_draws()):
            for quantity, values in draws:
                file.write(f"{quantity} {len(values)} {values.mean():.9g} {values.std():.9g}\n")


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_suffix("")
    folder.mkdir(exist_ok=True)
    write_bytes(folder / "bytes.txt")
    write_arguments(folder / "arguments.txt")
    write_draws(folder / "draws.txt")


if __name__ == "__main__":
    main()
