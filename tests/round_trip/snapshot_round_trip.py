"""Python opens snapshots as they lie: the model and the best one by safetensors, parts by their index, into torchvision."""

import json
import subprocess
import tempfile
import unittest
from pathlib import Path

import safetensors.torch
import torch
import torchvision

from programs import BINARIES

CLASSES = 7


class SnapshotRoundTrip(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        run = Path(folder.name)
        subprocess.run([BINARIES / "round_trip_snapshot", run], check=True)
        cls.expected = safetensors.torch.load_file(run / "expected.safetensors")
        cls.best = run / "snapshots" / (run / "snapshots" / "best").read_text().strip()
        cls.latest = run / "snapshots" / (run / "snapshots" / "LATEST").read_text().strip()

    def assert_expected(self, state):
        self.assertEqual(sorted(state), sorted(self.expected))
        for name, tensor in self.expected.items():
            self.assertEqual(state[name].dtype, tensor.dtype, name)
            self.assertTrue(torch.equal(state[name], tensor), name)
        net = torchvision.models.resnet18(num_classes=CLASSES)
        net.load_state_dict(state)  # strictly: every name, every shape
        self.assertTrue(torch.equal(net.conv1.weight, self.expected["conv1.weight"]))

    def test_the_best_model_loads_into_torchvision(self):
        self.assertEqual(self.best.name, "step-00000001")
        self.assert_expected(safetensors.torch.load_file(self.best / "model.safetensors"))
        with safetensors.safe_open(self.best / "model.safetensors", "pt") as file:
            self.assertEqual(file.metadata()["format"], "pt")

    def test_the_parts_of_the_latest_are_found_by_their_index(self):
        self.assertEqual(self.latest.name, "step-00000002")
        index = json.loads((self.latest / "model.safetensors.index.json").read_text())
        parts = sorted(set(index["weight_map"].values()))
        self.assertEqual(len(parts), 2)
        state = {}
        for part in parts:
            state |= safetensors.torch.load_file(self.latest / part)
        self.assertEqual(sorted(state), sorted(index["weight_map"]))
        self.assertEqual(sum(tensor.nbytes for tensor in state.values()), index["metadata"]["total_size"])
        self.assert_expected(state)

    def test_the_optimizer_has_named_tensors_and_its_options(self):
        path = self.best / "optimizer.safetensors"
        state = safetensors.torch.load_file(path)
        self.assertEqual(state["conv1.weight/step"].dtype, torch.int64)
        self.assertEqual(state["conv1.weight/step"].item(), 1)
        average = state["conv1.weight/exp_avg"]
        self.assertTrue(torch.allclose(average, torch.full_like(average, 0.05)))
        with safetensors.safe_open(path, "pt") as file:
            options = json.loads(file.metadata()["optimizer"])
        self.assertEqual(options["kind"], "Adam")
        self.assertEqual(options["groups"][0]["options"]["lr"], 0.125)
        self.assertIn("fc.bias", options["groups"][0]["parameters"])


if __name__ == "__main__":
    unittest.main()
