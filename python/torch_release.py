"""Says which torch a wheel needs, for pyproject.toml: that of the LibTorch which it is built with."""

import os
import re
from pathlib import Path


def dynamic_metadata(_settings, _project):
    for folder in folders():
        header = folder / "include/torch/headeronly/version.h"
        if header.exists():
            major, minor = re.findall(r"define TORCH_VERSION_(?:MAJOR|MINOR) (\d+)", header.read_text(encoding="utf-8"))
            return {"dependencies": [f"torch=={major}.{minor}.*"]}
    raise FileNotFoundError("no include/torch/headeronly/version.h of a LibTorch; run ./dev setup, or set LOCKSTEP_TORCH_DIR")


def folders():
    """Returns where cmake/FindLibTorch.cmake looks, in its order."""
    if named := os.environ.get("LOCKSTEP_TORCH_DIR"):
        return [Path(named), Path(named, "torch")]
    prefixes = filter(None, re.split("[:;]", os.environ.get("CMAKE_PREFIX_PATH", "")))
    places = (".", "torch", "../..", "../../..")
    own = sorted(Path(".deps").glob("libtorch-*/torch"), key=release, reverse=True)
    return [Path(prefix, place) for prefix in prefixes for place in places] + own


def release(folder):
    return [int(number) for number in re.findall(r"\d+", folder.parent.name)]
