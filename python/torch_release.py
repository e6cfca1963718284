"""Says which torch a wheel needs, for pyproject.toml: that of the LibTorch which it is built with."""

import os
import re
from pathlib import Path


def dynamic_metadata(_settings, _project):
    own = os.environ.get("LOCKSTEP_TORCH_DIR")
    folders = [own] if own else sorted(Path(".deps").glob("libtorch-*/torch"))
    for file in (Path(folder, name) for folder in folders for name in ("version.py", "../build-version")):
        if file.exists() and (found := re.search(r"\b(\d+\.\d+)\.\d+", file.read_text(encoding="utf-8"))):
            return {"dependencies": [f"torch=={found[1]}.*"]}
    raise FileNotFoundError(f"no version.py or build-version of LibTorch in {', '.join(map(str, folders)) or '.deps'}; run ./dev setup, or set LOCKSTEP_TORCH_DIR")
