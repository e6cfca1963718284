"""lockstep.export() writes programs that `lockstep train` trains by every task, and says what it cannot export."""

import json
import resource
import signal
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import nn
from torch.export.pt2_archive._package import load_pt2

from programs import lockstep

sys.path.append(str(Path(__file__).resolve().parents[2] / "python"))
from lockstep import export  # noqa: E402


class FewBytes:
    """Within it no file may be larger, as on a full disk."""

    def __init__(self, size):
        self.size = size

    def __enter__(self):
        self.signal = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        self.limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, self.limits[1]))

    def __exit__(self, *_):
        resource.setrlimit(resource.RLIMIT_FSIZE, self.limits)
        signal.signal(signal.SIGXFSZ, self.signal)


class Net(nn.Module):
    """Draws random numbers by itself, and normalises by the batch in training."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)
        self.line = nn.Linear(8, 1)

    def forward(self, x):
        noise = torch.randn_like(x) if self.training else 0
        return self.line(self.norm(x) + noise)


class Shift(nn.Module):
    def forward(self, first, second):
        return first - second


def errors(result, price):
    return {"loss": (result - price).square().mean(), "error": (result - price).abs().mean()}


class Scores(nn.Module):
    """A small language model of transformers."""

    def __init__(self, family):
        super().__init__()
        config = getattr(transformers, family + "Config")(
            vocab_size=32, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0)
        self.model = getattr(transformers, family + "ForCausalLM")(config)

    def forward(self, ids):
        return self.model(input_ids=ids, use_cache=False)[0]


class ExportRoundTrip(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        torch.manual_seed(1)
        self.x, self.price = torch.randn(64, 8), torch.randn(64, 1)
        save_file({"train_x": self.x, "train_price": self.price, "test_x": self.x.clone(), "test_price": self.price.clone()},
                  self.folder / "houses.safetensors")

    def trained(self, net, *flags):
        """Trains net.pt2 of the folder; loads the weights back and returns the summary."""
        found = lockstep("train", "--model", self.folder / "net.pt2", "--data", f"tensors:{self.folder}/houses.safetensors",
                         "--targets", "price", "--epochs", 3, "--batch-size", 16, "--progress", "none", "--json",
                         "--output", self.folder / "run", *flags)
        net.load_state_dict(load_file(self.folder / "run/model.safetensors"))
        return found

    def test_a_sample_is_enough_and_evaluations_are_those_of_python(self):
        net = Net()
        export(net, self.x[:1], self.folder / "net.pt2")
        found = self.trained(net)
        with torch.no_grad():
            expected = nn.functional.mse_loss(net.eval()(self.x), self.price).item()
        self.assertAlmostEqual(found["test_loss"], expected, places=5)
        self.assertGreater(net.norm.running_mean.abs().max().item(), 0, "the program of evaluation was trained")

    def test_programs_share_their_tensors(self):
        net = Net()
        net.line.register_buffer("mask", torch.ones(8, 8), persistent=False)
        net.norm.register_forward_hook(lambda layer, given, normed: normed @ net.line.mask)
        export(net, self.x, self.folder / "net.pt2")
        parts = [name for name in zipfile.ZipFile(self.folder / "net.pt2").namelist() if "/weights/weight_" in name or "/tensor_" in name]
        self.assertEqual(len(parts), len(net.state_dict()) + 1, parts)
        self.trained(net)
        lockstep("convert", self.folder / "run/model.safetensors", self.folder / "net.pt2", "-o", self.folder / "trained.pt2", "--json")
        for program in load_pt2(self.folder / "trained.pt2").exported_programs.values():
            torch.testing.assert_close(program.state_dict, net.state_dict(), rtol=0, atol=0)
        torch.testing.assert_close(program.module()(self.x), net.eval()(self.x))

    def test_a_loss_and_other_numbers(self):
        net = Net()
        export(net, (self.x, self.price), self.folder / "net.pt2", loss=errors)
        found = self.trained(net, "--task", "program")
        with torch.no_grad():
            expected = errors(net.eval()(self.x), self.price)
        self.assertAlmostEqual(found["test_loss"], expected["loss"].item(), places=5)
        self.assertAlmostEqual(found["test_error"], expected["error"].item(), places=5)

    def test_language_models_are_computed_by_our_kernels(self):
        ids, following = (torch.randint(0, 32, (64, 24)) for _ in range(2))
        save_file({"train_ids": ids, "train_next": following, "test_ids": ids.clone(), "test_next": following.clone()},
                  self.folder / "words.safetensors")
        for family in "Llama", "Qwen2", "Mistral":
            with self.subTest(family):
                torch.manual_seed(1)
                net = Scores(family)
                export(net, ids[:1], self.folder / "net.pt2")
                found = {who: self.kernels_of(net, who) for who in ("own", "libtorch")}
                self.assertEqual(found["own"]["fused"], {"rms_norm": 5, "swiglu": 2, "rotary": 4, "attention": 2})
                self.assertEqual(found["libtorch"]["fused"], {})
                for name, weight in found["own"]["weights"].items():
                    torch.testing.assert_close(weight, found["libtorch"]["weights"][name], rtol=1e-4, atol=1e-5)
                with torch.no_grad():
                    expected = nn.functional.cross_entropy(net.eval()(ids).flatten(0, 1), following.flatten()).item()
                for who in found:
                    self.assertAlmostEqual(found[who]["test_loss"], expected, places=4)

    def kernels_of(self, net, who):
        """Trains on words.safetensors; loads the weights back, and returns what was found and what was fused in a step."""
        run = self.folder / f"{type(net.model).__name__}-{who}"
        found = lockstep("train", "--model", self.folder / "net.pt2", "--data", f"tensors:{self.folder}/words.safetensors",
                         "--targets", "next", "--max-steps", 16, "--batch-size", 4, "--opt", "sgd", "--lr", 0.1, "--progress", "none",
                         "--json", "--output", run, "--kernels", who, "--profile")
        weights = load_file(run / "model.safetensors")
        net.load_state_dict(weights)
        operators = json.loads((run / "profile/profile.json").read_text())["ranks"][0]["operators"]
        names = {one["name"]: one["calls"] for one in operators if not one["backward"]}
        fused = {name.removeprefix("lockstep::"): round(calls, 6) for name, calls in names.items() if name.startswith("lockstep::")}
        return {**found, "weights": weights, "fused": fused}

    def programs(self, *arguments, **options):
        export(*arguments, self.folder / "net.pt2", **options)
        return load_pt2(self.folder / "net.pt2").exported_programs

    def test_tensors_have_the_names_of_forward_and_of_the_loss(self):
        pair = (self.x, self.x), self.x
        for loss, target in (nn.MSELoss(), "target"), (lambda *all: all[0].mean(), "target_0"), (nn.functional.l1_loss, "target"):
            program = self.programs(Shift(), pair, loss=loss)["train"]
            self.assertEqual(program.graph_signature.user_inputs, ("first", "second", target))
        self.assertEqual(program.module()(self.x, self.x, self.x), {"loss": self.x.abs().mean()})
        program = self.programs(Shift(), pair, loss=lambda y, second: (y - second).mean())["train"]
        self.assertEqual(program.graph_signature.user_inputs, ("first", "second", "target_0"), "a name for each")
        program = self.programs(Shift(), pair, loss=torch.dist)["train"]
        self.assertEqual(program.graph_signature.user_inputs, ("first", "second", "target_0"), "of a builtin")

    def test_parametrized_modules_may_have_a_loss(self):
        net = nn.utils.parametrizations.weight_norm(nn.Linear(8, 1))
        program = self.programs(net, (self.x, self.price), loss=nn.MSELoss())["eval"].module()
        self.assertEqual(program(self.x, self.price)["loss"], nn.functional.mse_loss(net(self.x), self.price))

    def test_a_file_that_cannot_be_written_stays_as_it_was(self):
        path = self.folder / "net.pt2"
        export(Net(), self.x, path)
        before = path.read_bytes()
        with FewBytes(4096), self.assertRaisesRegex(OSError, f"cannot write {path}.*File too large"):
            export(Net(), self.x, path)
        self.assertEqual(path.read_bytes(), before)
        self.assertEqual([file.name for file in self.folder.iterdir() if file.name.startswith("net")], ["net.pt2"])
        with self.assertRaises(FileNotFoundError) as caught:
            export(Net(), self.x, self.folder / "none" / "net.pt2")
        self.assertEqual(caught.exception.filename, str(self.folder / "none" / "net.pt2"))

    def test_modes_stay_and_what_is_frozen_is_so_in_the_program(self):
        net = Net()
        net.norm.eval()
        frozen = self.programs(net, self.x)["train"].module()
        self.assertEqual([part.training for part in net.modules()], [True, False, True])
        frozen(self.x)
        self.assertEqual(frozen.get_buffer("norm.running_mean").abs().max(), 0)
        for program, moves in (("train", True), ("eval", False)):
            module = self.programs(net.eval(), self.x)[program].module()
            module(self.x)
            self.assertEqual(module.get_buffer("norm.running_mean").abs().max() > 0, moves)
        self.assertEqual(net.norm.running_mean.abs().max(), 0)

    def test_what_cannot_be_exported_is_named(self):
        class TwoRows(nn.Module):
            def forward(self, x):
                return x.view(2, -1)

        hooked = Net()
        hooked.register_forward_hook(lambda *_: None)
        x, mean = self.x, torch.mean
        for error, text, model, sample, options in (
                (TypeError, "is a function, not a torch.nn.Module", errors, x, {}),
                (TypeError, "input 1 of the sample is a int", Shift(), (x, 1), {}),
                (ValueError, r"\[64, 8\], \[32, 8\]", Shift(), (x, x[:32]), {}),
                (ValueError, r"\[0, 8\]", Net(), x[:0], {}),
                (TypeError, "a pair of inputs and targets, not Tensor", Net(), x, {"loss": mean}),
                (TypeError, "a pair of inputs and targets, not 3 things", Net(), (x, x, x), {"loss": mean}),
                (TypeError, "the loss is a str", Net(), (x, x), {"loss": "mse"}),
                (RuntimeError, "in training.*\n.*neither a tensor without dimensions", Net(), (x, x), {"loss": lambda y, t: y - t}),
                (TypeError, "the loss has parameters to train, weight, bias", Net(), (x, x), {"loss": nn.Bilinear(1, 8, 1)}),
                (TypeError, "input 0 of the sample is a dict, .*in the order of forward's parameters", Net(), {"x": x}, {}),
                (TypeError, "hooks", hooked, (x, x), {"loss": mean}),
                (RuntimeError, "TwoRows in training for any number of samples:\n.*samples", TwoRows(), x, {})):
            with self.assertRaisesRegex(error, "^lockstep.export: .*" + text):
                export(model, sample, self.folder / "net.pt2", **options)
            self.assertFalse((self.folder / "net.pt2").exists())
        with self.assertRaisesRegex(ValueError, "net.onnx must end in .pt2"):
            export(Net(), x, self.folder / "net.onnx")


if __name__ == "__main__":
    unittest.main()
