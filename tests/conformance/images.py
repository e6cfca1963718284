#!/usr/bin/env python3
"""Writes small image files and what Pillow reads from them, for tests/formats/image: images.py [FOLDER].

Pillow makes the files, except those of kinds that it only reads (16-bit colour, interlaced PNG, YCCK). `pixels.csv` has
a line per file: name, whether EXIF's orientation is applied, width, height, CRC-32 of the bytes of
`Image.open(file).convert("RGB")`.
"""

import struct
import sys
import zlib
from pathlib import Path

import PIL
from PIL import Image, ImageOps

SIZE = (45, 35)
# Adam7: first column, first row, step of columns, step of rows of each pass.
PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}


def picture(mode="RGB", size=SIZE):
    """Returns smooth colours with hard edges, which show how colour is upsampled."""
    image = Image.new("RGB", size)
    for y in range(size[1]):
        for x in range(size[0]):
            edge = 255 if (x // 5 + y // 7) % 2 else 0
            image.putpixel((x, y), ((x * 5) % 256, (y * 7 + edge) % 256, (edge + x * y) % 256))
    return image.convert(mode)


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def packed_row(samples, depth):
    """Returns one row of a PNG image: its filter, none, and its samples."""
    if depth == 16:
        return b"\0" + b"".join(struct.pack(">H", sample) for sample in samples)
    row, bits, held = bytearray(), 0, 0
    for sample in samples:
        held, bits = held << depth | sample, bits + depth
        if bits == 8:
            row.append(held)
            held, bits = 0, 0
    if bits:
        row.append(held << (8 - bits))
    return b"\0" + bytes(row)


def png(size, colour_type, depth, interlaced=False, chunks=b""):
    """Returns a PNG file whose samples run through all values."""
    count, most = SAMPLES[colour_type], 2 ** depth
    pixel = [[[(x * 977 + y * 311 + (x * y) // 3 + c * 7919) % most for c in range(count)]
              for x in range(size[0])] for y in range(size[1])]
    rows = b""
    for left, top, across, down in PASSES if interlaced else [(0, 0, 1, 1)]:
        if left >= size[0]:
            continue
        for y in range(top, size[1], down):
            rows += packed_row([sample for x in range(left, size[0], across) for sample in pixel[y][x]], depth)
    header = struct.pack(">IIBBBBB", *size, depth, colour_type, 0, 0, int(interlaced))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunks + chunk(b"IDAT", zlib.compress(rows, 9))
            + chunk(b"IEND", b""))


def palette(colours):
    return chunk(b"PLTE", bytes((i * 37 + c * 91) % 256 for i in range(colours) for c in range(3)))


def write_jpegs(folder):
    for name, options in {
            "444": {"subsampling": "4:4:4"},
            "422": {"subsampling": "4:2:2"},
            "420": {"subsampling": "4:2:0"},
            "quality-20": {"quality": 20},
            "progressive": {"progressive": True},
            "progressive-444": {"progressive": True, "subsampling": "4:4:4"},
            "restart": {"restart_marker_blocks": 2},
            "restart-rows": {"restart_marker_rows": 1, "progressive": True}}.items():
        picture().save(folder / f"jpeg-{name}.jpg", **{"quality": 85, **options})
    picture("L").save(folder / "jpeg-grey.jpg", quality=85)
    picture(size=(1, 1)).save(folder / "jpeg-1x1.jpg")
    picture(size=(300, 1)).save(folder / "jpeg-300x1.jpg")
    picture(size=(1, 300)).save(folder / "jpeg-1x300.jpg")
    picture().save(folder / "jpeg-rgb.jpg", quality=85, keep_rgb=True)
    picture("CMYK").save(folder / "jpeg-cmyk.jpg", quality=85)
    write_ycck(folder)
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        picture(size=(21, 10)).save(folder / f"exif-{orientation}.jpg", exif=exif, quality=85)


def write_ycck(folder):
    """Says in the Adobe segment of a CMYK file that its colours are YCCK."""
    content = bytearray((folder / "jpeg-cmyk.jpg").read_bytes())
    adobe = content.index(b"Adobe")
    content[adobe + 11] = 2
    (folder / "jpeg-ycck.jpg").write_bytes(content)


def write_pngs(folder):
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA"):
        picture(mode).save(folder / f"png-pillow-{mode}.png")
    for colour_type, depths in {0: (1, 2, 4, 8), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}.items():
        for depth in depths:
            before = palette(2 ** depth) if colour_type == 3 else b""
            for interlaced in (False, True):
                name = f"png-type{colour_type}-{depth}{'-interlaced' if interlaced else ''}.png"
                (folder / name).write_bytes(png((19, 13), colour_type, depth, interlaced, before))
    (folder / "png-type0-16.png").write_bytes(png((19, 13), 0, 16))
    (folder / "png-1x1-interlaced.png").write_bytes(png((1, 1), 2, 8, True))
    (folder / "png-transparent-colour.png").write_bytes(png((9, 9), 2, 8, False, chunk(b"tRNS", bytes(6))))
    (folder / "png-transparent-palette.png").write_bytes(
        png((9, 9), 3, 4, False, palette(16) + chunk(b"tRNS", bytes(range(16)))))
    exif = Image.Exif()
    exif[0x0112] = 6
    picture(size=(11, 8)).save(folder / "exif-6.png", exif=exif)
    frames = [picture(size=(8, 8)).rotate(90 * i) for i in range(3)]
    frames[0].save(folder / "png-animated.png", save_all=True, append_images=frames[1:])
    frames[0].save(folder / "png-animated-default.png", save_all=True, append_images=frames[1:], default_image=True)


def expected(path, is_turned):
    with Image.open(path) as image:
        turned = ImageOps.exif_transpose(image) if is_turned else image
        # Pillow cuts 16-bit grey at 255, which leaves a white image; in colour it keeps the upper byte.
        if turned.mode == "I;16":
            turned = Image.frombytes("L", turned.size, turned.tobytes()[1::2])
        pixels = turned.convert("RGB")
    return f"{path.name},{int(is_turned)},{pixels.width},{pixels.height},{zlib.crc32(pixels.tobytes()):08x}\n"


def main(folder):
    folder.mkdir(exist_ok=True)
    write_jpegs(folder)
    write_pngs(folder)
    files = sorted(path for path in folder.iterdir() if path.suffix in (".jpg", ".png"))
    lines = [expected(path, is_turned) for path in files for is_turned in (False, True)]
    (folder / "pixels.csv").write_text(
        f"# Made by tests/conformance/images.py with Pillow {PIL.__version__}\n" + "".join(lines))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "images")
