"""Weights of torchvision's nets cross both ways, and both sides then compute the same logits.

Python writes .pth and .safetensors, our program reads and computes; ours writes both, Python loads them strictly. The
logits agree within 1e-5 of their norm, the weights bit for bit.
"""

import subprocess
import tempfile
import unittest
from pathlib import Path

import safetensors.torch
import torch
import torchvision
from programs import BINARIES

CLASSES = 7
TOLERANCE = 1e-5
MODELS = {"resnet18": "resnet18", "resnet50": "resnet50", "vgg11": "vgg11", "vgg11-bn": "vgg11_bn"}


def formula_images():
    """Returns the images of logits.cpp."""
    numbers = torch.arange(2 * 3 * 64 * 64, dtype=torch.int64) * 1103515245 % 2048
    return (numbers.to(torch.float32) / 1024 - 1).view(2, 3, 64, 64)


def fresh_net(model):
    """Makes a net whose running statistics are not those of the start."""
    torch.manual_seed(5)
    net = getattr(torchvision.models, MODELS[model])(num_classes=CLASSES)
    with torch.no_grad():
        net.train()(formula_images() * 2)
    return net


def logits_of(net):
    with torch.no_grad():
        return net.eval()(formula_images()).flatten()


def ours(model, *words):
    """Returns the logits that our program prints."""
    command = [BINARIES / "round_trip_logits", model, str(CLASSES), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr}")
    return torch.tensor([float(line) for line in done.stdout.split()])


def write(state, path):
    if path.suffix == ".safetensors":
        safetensors.torch.save_file(state, path)
    else:
        torch.save(state, path)


def read(path):
    if path.suffix == ".safetensors":
        return safetensors.torch.load_file(path)
    return torch.load(path)  # weights_only=True is its default


class LogitsRoundTrip(unittest.TestCase):
    def setUp(self):
        torch.set_num_threads(1)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def each(self):
        for model in MODELS:
            for suffix in (".pth", ".safetensors"):
                with self.subTest(model=model, suffix=suffix):
                    yield model, self.folder / f"weights{suffix}", self.folder / f"back{suffix}"

    def assert_close(self, found, expected):
        self.assertEqual(found.shape, expected.shape)
        self.assertLessEqual(((found - expected).norm() / expected.norm()).item(), TOLERANCE)

    def assert_equal_states(self, found, expected):
        self.assertEqual(sorted(found), sorted(expected))
        for name, tensor in expected.items():
            self.assertEqual(found[name].dtype, tensor.dtype, name)
            self.assertTrue(torch.equal(found[name], tensor), name)

    def test_weights_of_python_give_the_same_logits_here_and_come_back_unchanged(self):
        for model, theirs, back in self.each():
            net = fresh_net(model)
            write(net.state_dict(), theirs)
            self.assert_close(ours(model, "copy", theirs, back), logits_of(net))
            self.assert_equal_states(read(back), net.state_dict())
            if theirs.suffix == ".pth":
                self.assertEqual(list(read(back)), list(net.state_dict()), "the order")

    def test_weights_of_ours_give_the_same_logits_in_python(self):
        for model, _, made in self.each():
            found = ours(model, "write", made)
            net = fresh_net(model)
            net.load_state_dict(read(made), strict=True)
            self.assert_close(found, logits_of(net))

    def test_weights_of_pythons_ddp_and_in_half_precision_are_taken(self):
        path = self.folder / "other.pth"
        net = fresh_net("resnet18")
        write({f"module.{name}": tensor for name, tensor in net.state_dict().items()}, path)
        self.assert_close(ours("resnet18", "read", path), logits_of(net))
        write(net.half().state_dict(), path)
        self.assert_close(ours("resnet18", "read", path), logits_of(net.float()))


if __name__ == "__main__":
    unittest.main()
