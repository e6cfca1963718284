"""Snapshots of `lockstep train` open in Python by what docs/snapshots.md says, and fit torchvision's modules."""

import re
import tempfile
import unittest
from pathlib import Path

import torch
import torchvision
from safetensors.torch import load_file

from programs import lockstep

ROOT = Path(__file__).resolve().parents[2]


def train(run, *flags):
    lockstep("train", "--data", "mock", "--batch-size", 2, "--max-steps", 2, "--progress", "none", "--json",
             "--output", run, *flags)


class TrainSnapshotRoundTrip(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)

    def snippets(self):
        """Runs the page's Python; yields what each piece calls `weights`."""
        page = (ROOT / "docs/snapshots.md").read_text()
        for code in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
            names = {"RUN": str(self.folder / "whole"), "STAGED": str(self.folder / "staged")}
            exec(code, names)
            yield names["weights"]

    def assert_fits(self, weights):
        model = torchvision.models.resnet18(num_classes=weights["fc.weight"].shape[0])
        model.load_state_dict(weights)
        self.assertTrue(torch.isfinite(model.eval()(torch.zeros(1, 3, 64, 64))).all())

    def test_the_page_reads_whole_and_staged_ones(self):
        train(self.folder / "whole", "--model", "resnet18")
        train(self.folder / "staged", "--model", "resnet18", "--parallel", "pp",
              "--nproc-per-node", 2, "--balance", "count")
        found = list(self.snippets())
        self.assertEqual(len(found), 2)
        for weights in found:
            self.assert_fits(weights)

    def test_the_best_is_the_file_of_the_best(self):
        train(self.folder / "whole", "--model", "mnist-small")
        best = load_file(self.folder / "whole/best.safetensors")
        weights = next(self.snippets())
        self.assertEqual(sorted(weights), sorted(best))
        for name, tensor in best.items():
            self.assertTrue(torch.equal(weights[name], tensor), name)

    def test_the_optimizer_is_there_by_parameter(self):
        train(self.folder / "whole", "--model", "mnist-small", "--opt", "adam")
        state = load_file(self.folder / "whole/snapshots/step-00000002/optimizer.safetensors")
        weights = load_file(self.folder / "whole/snapshots/step-00000002/model.safetensors")
        for name, tensor in weights.items():
            self.assertEqual(state[f"{name}/exp_avg"].shape, tensor.shape)


if __name__ == "__main__":
    unittest.main()
