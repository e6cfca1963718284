"""Weights cross from Python to Lockstep and back: the same names, types, shapes and bytes (conformance W6 to W9)."""

import copy
import io
import sys
import tempfile
import unittest
from collections import OrderedDict
from pathlib import Path

import safetensors.torch
import torch
import torchvision
from torch.export.pt2_archive._package import load_pt2, package_pt2

from programs import lockstep

sys.path.append(str(Path(__file__).resolve().parents[1] / "conformance"))
import weights  # noqa: E402  the contents of which the unit tests have files

MODELS = ["resnet18", "resnet50", "vgg11_bn", "mobilenet_v3_small"]


def model(name):
    torch.manual_seed(1)
    # The classifiers of VGG alone would be 400 MB.
    options = {"init_weights": False} if name.startswith("vgg") else {}
    net = getattr(torchvision.models, name)(num_classes=10, **options)
    if name.startswith("vgg"):
        net.classifier = torch.nn.Linear(512 * 7 * 7, 10)
    return net


def state_dicts():
    """Yields names and what a user may save, all of tensors."""
    yield "ordered", OrderedDict(weight=torch.randn(3, 4), bias=torch.randn(3))
    yield "plain", {"weight": torch.randn(3, 4)}
    yield "empty", OrderedDict()
    yield "parameter", OrderedDict(weight=torch.nn.Parameter(torch.randn(3)), buffer=torch.arange(5))
    yield "views", weights.views()
    yield "types", OrderedDict((name, weights.counted((2, 3), getattr(torch, name))) for name in weights.TYPES)
    yield "odd_sizes", OrderedDict((f"t{size}.x", torch.randn(size).to(torch.float16)) for size in (0, 1, 3, 5, 127))
    yield "odd_names", OrderedDict((name, torch.ones(2)) for name in ("é", "a b", 'q"', "\\", "\n", "日本", "😀"))
    yield "many", OrderedDict((f"layer.{i}.weight", torch.full((2,), float(i))) for i in range(3000))
    yield "optimizer", {"state": {i: {"exp_avg": torch.randn(2), "step": torch.tensor(3.0)} for i in range(3)}}


class Odd(torch.nn.Module):
    """Tied weights, channels last, two types, buffers that are saved and one that is not."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 4, 3).to(memory_format=torch.channels_last)
        self.norm = torch.nn.BatchNorm2d(4)
        self.first, self.second = torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.scale = torch.nn.Parameter(torch.randn(4, dtype=torch.bfloat16))
        self.register_buffer("shift", torch.randn(4), persistent=False)

    def forward(self, x):
        return self.second(self.first(self.norm(self.conv(x)).mean((2, 3))) + self.shift) * self.scale


def flat(content):
    return OrderedDict(weights.flat(content))


class WeightsRoundTrip(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        torch.manual_seed(0)

    def assert_same(self, got, expected):
        self.assertEqual(sorted(got), sorted(expected))
        for name, tensor in expected.items():
            self.assertEqual(got[name].dtype, tensor.dtype, name)
            self.assertEqual(got[name].shape, tensor.shape, name)
            self.assertEqual(weights.plain_bytes(got[name]), weights.plain_bytes(tensor), name)

    def convert(self, source, target, *flags):
        path = self.folder / target
        lockstep("convert", self.folder / source, path, "--force", "--json", *flags)
        return path

    def test_torch_files_of_python_become_safetensors(self):
        for name, content in state_dicts():
            with self.subTest(name):
                torch.save(content, self.folder / "a.pt")
                path = self.convert("a.pt", "b.safetensors")
                self.assert_same(safetensors.torch.load_file(path), flat(content))
                with safetensors.safe_open(path, "pt") as file:
                    self.assertEqual(file.metadata(), {"format": "pt"})

    def test_torch_files_of_python_come_back_in_the_same_order(self):
        for name, content in state_dicts():
            with self.subTest(name):
                torch.save(content, self.folder / "a.pt")
                back = torch.load(self.convert("a.pt", "b.pth"))
                self.assertIs(type(back), OrderedDict)
                self.assertEqual(list(back), list(flat(content)))
                self.assert_same(back, flat(content))

    def test_safetensors_of_python_become_torch_files_and_come_back(self):
        for name, content in state_dicts():
            with self.subTest(name):
                plain = {key: tensor.detach().contiguous().clone() for key, tensor in flat(content).items()}
                safetensors.torch.save_file(plain, self.folder / "a.safetensors", {"format": "pt"})
                self.assert_same(torch.load(self.convert("a.safetensors", "b.pt"), weights_only=True), plain)
                self.convert("b.pt", "c.safetensors")
                self.assertEqual((self.folder / "c.safetensors").read_bytes(), (self.folder / "a.safetensors").read_bytes())

    def test_the_same_input_gives_the_same_bytes(self):
        torch.save(weights.views(), self.folder / "a.pt")
        for target in ("b.pt", "b.safetensors"):
            first = self.convert("a.pt", target).read_bytes()
            self.assertEqual(self.convert("a.pt", target).read_bytes(), first)

    def test_models_of_torchvision_load_strictly(self):
        for name in MODELS:
            with self.subTest(name):
                original = model(name).state_dict()
                torch.save(original, self.folder / "a.pt")
                self.convert("a.pt", "b.safetensors")
                back = torch.load(self.convert("b.safetensors", "c.pt"), weights_only=True, mmap=True)
                model(name).load_state_dict(back, strict=True)
                self.assert_same(back, original)

    def test_a_part_of_a_checkpoint(self):
        net = model("mobilenet_v3_small")
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        net(torch.randn(2, 3, 64, 64)).sum().backward()
        optimizer.step()
        checkpoint = {"state_dict": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 7, "best": 0.25}
        torch.save(checkpoint, self.folder / "a.pt")
        path = self.convert("a.pt", "b.safetensors", "--only", "state_dict")
        net.load_state_dict(safetensors.torch.load_file(path), strict=True)
        path = self.convert("a.pt", "state.pt", "--only", "optimizer.state")
        self.assertEqual(len(torch.load(path)), len(list(net.parameters())))
        with self.assertRaisesRegex(RuntimeError, 'exit code 3: .*: --only "state_dict" .*are not tensors: '):
            self.convert("a.pt", "c.safetensors")

    def test_weights_come_into_exported_programs(self):
        net, trained, images = Odd(), Odd(), (torch.randn(2, 2, 5, 5),)
        trained.shift.copy_(net.shift)
        trained.norm.running_mean.normal_()
        trained.norm.num_batches_tracked += 7
        programs = {mode: torch.export.export(net.train(mode == "train"), images) for mode in ("train", "eval")}
        package_pt2(self.folder / "net.pt2", exported_programs=programs)
        state = trained.state_dict()
        torch.save(state, self.folder / "weights.pt")
        safetensors.torch.save_model(trained, str(self.folder / "weights.safetensors"))
        for source in ("weights.pt", "weights.safetensors"):
            lockstep("convert", self.folder / source, self.folder / "net.pt2", "-o", self.folder / f"{source}.pt2", "--json")
            for mode, program in load_pt2(self.folder / f"{source}.pt2").exported_programs.items():
                self.assert_same(program.state_dict, state)
                self.assertEqual(program.state_dict["conv.weight"].stride(), state["conv.weight"].stride())
                self.assertTrue(torch.equal(program.module()(*images), copy.deepcopy(trained).train(mode == "train")(*images)), mode)

    def test_what_cannot_cross_is_refused(self):
        torch.save({"a": torch.ones(1, dtype=torch.complex128)}, self.folder / "a.pt")
        with self.assertRaisesRegex(RuntimeError, 'exit code 2: .*"a" is complex128'):
            self.convert("a.pt", "b.safetensors")
        for content in (torch.nn.Linear(1, 1), {"a": {1}}, {"a": torch.ones(2).to_sparse()}):
            torch.save(content, self.folder / "a.pt")
            with self.assertRaisesRegex(RuntimeError, "exit code 3: .*which is not read, let alone executed"):
                self.convert("a.pt", "b.safetensors")
        torch.save({"a": torch.ones(2, dtype=torch.complex64).conj()}, self.folder / "a.pt")
        with self.assertRaisesRegex(RuntimeError, r"exit code 3: .*metadata \(conj, neg\)"):
            self.convert("a.pt", "b.safetensors")

    def test_a_file_that_python_read_from_memory(self):
        buffer = io.BytesIO()
        torch.save(OrderedDict(weight=torch.randn(2)), buffer)
        (self.folder / "a.bin").write_bytes(buffer.getvalue())
        self.assertEqual(list(torch.load(self.convert("a.bin", "b.bin"))), ["weight"])


if __name__ == "__main__":
    unittest.main()
