"""docs/python.md, block by block: from a net of Python to a run on two ranks and back."""

import os
import subprocess
import sys
import tempfile
import types
import unittest
from contextlib import chdir
from pathlib import Path

import torch
import torchvision
from safetensors.torch import load_file

from programs import BINARIES

sys.path.append(str(Path(__file__).resolve().parents[1] / "pages"))
sys.path.append(str(Path(__file__).resolve().parents[2] / "python"))  # of `import lockstep`
import pages  # noqa: E402  knows what a block is


def provide_timm():
    """timm is not among the pinned packages; where it is missing, nets of torchvision take its place."""
    try:
        import timm  # noqa: F401
    except ModuleNotFoundError:
        def create_model(name, **options):
            return getattr(torchvision.models, name)(**options)

        sys.modules["timm"] = types.SimpleNamespace(create_model=create_model)


def follow(page, folder):
    """Runs all blocks in their order; returns the names that Python then has."""
    names = {}
    environment = {**os.environ, "PATH": f"{BINARIES}:{os.environ['PATH']}"}
    for block in pages.reader.blocks_of(page.read_text()):
        where = f"{page.name}:{block.line}"
        if block.language == "python":
            exec(compile(block.text, where, "exec"), names)
            continue
        done = subprocess.run(["bash", "-ec", block.text], cwd=folder, env=environment, capture_output=True, text=True)
        if block.language != "bash" or done.returncode != 0:
            raise RuntimeError(f"{where}: {block.language} with exit code {done.returncode}: {done.stderr}")
    return names


class PythonPageRoundTrip(unittest.TestCase):
    def test_every_block_runs_and_the_weights_come_back(self):
        provide_timm()
        torch.manual_seed(1)
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            names = follow(pages.ROOT / "docs/python.md", folder)
            one = load_file("run-one/best.safetensors")
        images = torch.randn(4, 3, 32, 32)
        with torch.no_grad():
            self.assertTrue(torch.equal(names["predict"](images), names["net"].eval()(images)))
            names["net"].load_state_dict(one)
            self.assertTrue(torch.equal(names["trained"](images), names["net"].train()(images)))


if __name__ == "__main__":
    unittest.main()
