#!/usr/bin/env python3
"""Tests lockstep.profile(): what it counts, what it refuses, and that `lockstep plan` reads it.

    LOCKSTEP_BINARY_DIR=build/release/bin PYTHONPATH=python tests/python/profile_test.py [NAMES]

In an environment with the wheel, the program is the wheel's.
"""

import contextlib
import datetime
import functools
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

import torch
import torch.distributed as dist
from torch import multiprocessing, nn

import lockstep
from lockstep._tensors import unchanged

OWN = Path(lockstep.cmake_prefix_path) / "bin/lockstep"
PROGRAM = OWN if OWN.exists() else Path(os.environ["LOCKSTEP_BINARY_DIR"]) / "lockstep"
QUICK = {"seconds": 0.01}


def small_net():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def small_sample(samples=6):
    return torch.randn(samples, 8), torch.randn(samples, 4)


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm, self.line = nn.LayerNorm(size), nn.Linear(size, size)

    def forward(self, x):
        return x + self.line(self.norm(x))


class Stack(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.blocks = nn.ModuleList(Block(8) for _ in range(blocks))
        self.dropout = nn.Dropout()

    def forward(self, tokens):
        x = self.dropout(self.embedding(tokens))
        for block in self.blocks:
            x = block(x)
        return x


class LanguageModel(nn.Module):
    """As those of transformers: it returns a loss if it is given labels, and its two ends share a parameter."""

    def __init__(self, blocks=2):
        super().__init__()
        self.body, self.head = Stack(blocks), nn.Linear(8, 10, bias=False)
        self.head.weight = self.body.embedding.weight

    def forward(self, tokens, mask=None, labels=None):
        logits = self.head(self.body(tokens))
        return {"loss": None if labels is None else nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


class Skip(nn.Module):
    """What the first unit makes is used again by the last."""

    def __init__(self):
        super().__init__()
        self.one, self.pool, self.two = nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)

    def forward(self, x):
        first = self.one(x)
        return self.two(self.pool(self.pool(first)) + first)


class Shared(nn.Module):
    """Two lists have the same module."""

    def __init__(self):
        super().__init__()
        line = nn.Linear(8, 8)
        self.one, self.two = nn.Sequential(line, nn.ReLU()), nn.Sequential(line, nn.Tanh())

    def forward(self, x):
        return self.two(self.one(x))


class Between(nn.Module):
    """Multiplies between its units."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 4)
        self.register_buffer("turn", torch.randn(8, 8))

    def forward(self, x):
        return self.two(self.one(x) @ self.turn)


class Whims(nn.Module):
    """Calls a unit in every second step."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.steps = nn.Linear(8, 8), nn.Linear(8, 8), 0

    def forward(self, x):
        self.steps += 1
        return self.two(self.one(x)) if self.steps % 2 else self.one(x)


class TwoRows(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(8, 4)

    def forward(self, x):
        return self.line(x).view(2, -1)


def mean(result, *targets):
    return result.mean()


@contextlib.contextmanager
def pair(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/world", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=60))
    yield
    os._exit(0)  # the optimizer makes PyTorch keep the group, whose threads may call std::terminate at an ordinary end


def profile_in_pair(rank, folder):
    with pair(rank, folder):
        lockstep.profile(small_net(), small_sample(), loss=nn.MSELoss(), batches=(2, 4), path=f"{folder}/{rank}.json", **QUICK)


def refuse_in_pair(rank, folder):
    expected = ("makes no step with 4 samples", "rank 0 could not measure")[rank]
    with pair(rank, folder), unittest.TestCase().assertRaisesRegex(RuntimeError, expected):
        lockstep.profile(TwoRows(), small_sample(2), loss=nn.MSELoss(), batches=(2, 4), path=f"{folder}/{rank}.json", **QUICK)


class ProfileTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.path = self.folder / "p.json"
        torch.manual_seed(1)
        torch.set_num_threads(1)

    def profile(self, *arguments, **options):
        lockstep.profile(*arguments, path=self.path, **QUICK, **options)
        return json.loads(self.path.read_text())

    def small(self, **options):
        return self.profile(small_net(), small_sample(), loss=nn.MSELoss(), batches=(4, 2), **options)

    def plan(self, *flags):
        """Returns the answer of `lockstep plan` about 8 samples."""
        words = [PROGRAM, "plan", "--profile", self.path, "--batch", "8", "--json", *flags]
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout.splitlines()[-1])

    def ways(self, *flags):
        answer = self.plan(*flags)
        return {choice["parallel"] for choice in answer["choices"]}, {each["way"]: each["reason"] for each in answer["impossible"]}

    def of_layers(self, profile, field):
        return [layer[field] for layer in profile["layers"]]

    def assert_small(self, profile):
        """What the net computes and keeps of a sample, counted by hand."""
        self.assertEqual(self.of_layers(profile, "name"), ["0", "1", "2"])
        self.assertEqual(self.of_layers(profile, "parameters"), [[4 * 8 * 16, 4 * 16], [], [4 * 16 * 4, 4 * 4]])
        one, two = 2 * 8 * 16, 2 * 16 * 4  # of a matrix product; nobody asks for the gradient of the first one's input
        self.assertEqual(self.of_layers(profile, "flops"), [2 * one, 0, 3 * two])
        self.assertEqual(profile["flops"], 2 * one + 3 * two)
        self.assertEqual(profile["product_flops"], profile["flops"])
        # The first line keeps its input, ReLU its output, which the second line needs too, and the loss both of its inputs.
        self.assertEqual(self.of_layers(profile, "activation_bytes"), [4 * 8, 4 * 16, 4 * 4 + 4 * 4])
        self.assertEqual(self.of_layers(profile, "output_bytes"), [4 * 16, 4 * 16, 0])

    def test_what_a_small_net_computes_and_keeps(self):
        profile = self.small()
        self.assert_small(profile)
        self.assertEqual((profile["v"], profile["model"], profile["precision"], profile["measured"]), (3, "Sequential", "32", True))
        for curve in [profile["rest"], *self.of_layers(profile, "forward"), *self.of_layers(profile, "backward")]:
            self.assertEqual([point["batch"] for point in curve], [2, 4])
        for phase in ("forward", "backward"):
            self.assertTrue(all(point["seconds"] > 0 for curve in self.of_layers(profile, phase) for point in curve), phase)
        self.assertEqual(profile["state_copies"], 2)
        self.assertEqual(self.small(optimizer=functools.partial(torch.optim.SGD, lr=0.1))["state_copies"], 0)

    def test_a_model_on_the_meta_device_is_counted(self):
        with torch.device("meta"):
            net = small_net()
        profile = self.profile(net, small_sample(), loss=nn.MSELoss(), batches=(4, 2))
        self.assert_small(profile)
        self.assertFalse(profile["measured"])
        self.assertEqual(profile["state_copies"], 2)
        self.assertEqual(profile["overheads"]["replica_bytes"], 4 * 8 * 16, "the largest gradient, on its way into its bucket")
        for layer in profile["layers"]:
            seconds = sum(layer[phase][0]["seconds"] for phase in ("forward", "backward"))
            self.assertAlmostEqual(seconds, 4 * layer["flops"] / 1e12)
        self.assertEqual({parameter.device.type for parameter in net.parameters()}, {"meta"})
        self.assertEqual(self.plan("--device", "A100", "--places", "1,4")["device"], "A100")

    def test_a_counted_loss_may_have_weights(self):
        with torch.device("meta"):
            net = small_net()
        sample = torch.randn(4, 8), torch.randint(4, (4,))
        profile = self.profile(net, sample, loss=nn.CrossEntropyLoss(weight=torch.ones(4)), batches=(2, 4))
        self.assertFalse(profile["measured"])

    def test_a_model_that_cannot_be_moved_stays_as_it_was(self):
        net = small_net()
        before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
        with self.assertRaisesRegex(ValueError, "nothing is measured on the meta device"):
            self.profile(net, small_sample(), loss=nn.MSELoss(), device="meta")
        with self.assertRaises(NotImplementedError), unchanged(net, torch.device("meta")):
            raise NotImplementedError
        for name, tensor in net.state_dict().items():
            self.assertTrue(torch.equal(tensor, before[name]), name)

    def test_autocast_keeps_half_and_copies_of_the_weights_are_not_of_a_sample(self):
        profile = self.small(precision="bf16-mixed")
        self.assertEqual(profile["precision"], "bf16-mixed")
        self.assertEqual(self.of_layers(profile, "activation_bytes")[:2], [2 * 8, 2 * 16])
        self.assertEqual(self.of_layers(profile, "parameters")[0], [4 * 8 * 16, 4 * 16])

    def test_units_are_blocks_or_those_that_are_named(self):
        tokens = torch.randint(10, (4, 5))
        sample = {"tokens": tokens, "labels": tokens, "mask": None}
        profile = self.profile(LanguageModel(), sample)
        self.assertEqual(self.of_layers(profile, "name"), ["body.embedding", "body.dropout", "body.blocks.0", "body.blocks.1", "head"])
        self.assertEqual(self.of_layers(profile, "parameters"), [[320], [], [32, 32, 256, 32], [32, 32, 256, 32], []])
        profile = self.profile(LanguageModel(3), sample, units="body.blocks.*")
        self.assertEqual(self.of_layers(profile, "name"), ["body.blocks.0", "body.blocks.1", "body.blocks.2"])
        self.assertEqual(self.of_layers(profile, "parameters")[0], [320, 32, 32, 256, 32], "what comes before is the first one's")
        profile = self.profile(nn.Linear(8, 4), small_sample(4), loss=nn.MSELoss())
        self.assertEqual(self.of_layers(profile, "name"), ["Linear"])

    def test_all_that_is_used_later_passes_a_cut(self):
        profile = self.profile(Skip(), (torch.randn(4, 8), ()), loss=mean)
        self.assertEqual(self.of_layers(profile, "name"), ["one", "pool", "pool (2)", "two"])
        self.assertEqual(self.of_layers(profile, "output_bytes"), [4 * 8, 2 * 4 * 8, 4 * 8, 0], "the sum is of the third")

    def test_a_module_in_two_places_is_one_unit_that_is_called_twice(self):
        profile = self.profile(Shared(), (torch.randn(4, 8), ()), loss=mean)
        self.assertEqual(self.of_layers(profile, "name"), ["one.0", "one.1", "one.0 (2)", "two.1"])
        self.assertEqual(self.of_layers(profile, "parameters"), [[4 * 8 * 8, 4 * 8], [], [], []])

    def test_what_is_computed_between_units_is_of_the_one_before(self):
        profile = self.profile(Between(), (torch.randn(4, 8), ()), loss=mean)
        product = 2 * 8 * 8
        self.assertEqual(self.of_layers(profile, "flops"), [2 * product + 2 * product, 3 * 2 * 8 * 4])

    def test_matrix_products_are_told_from_convolutions(self):
        net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Flatten(), nn.Linear(8, 4))
        profile = self.profile(net, (torch.randn(4, 1, 2, 2), torch.randn(4, 4)), loss=nn.MSELoss())
        convolution, product = 2 * 2 * 4, 2 * 8 * 4
        self.assertEqual(profile["flops"], 2 * convolution + 3 * product)
        self.assertEqual(profile["product_flops"], 3 * product)
        self.assertEqual(self.of_layers(profile, "product_flops"), [0, 0, 3 * product])

    def test_a_batch_that_the_model_does_not_take_is_left_out_unless_it_was_asked_for(self):
        net = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4))
        profile = self.profile(net, small_sample(4), loss=nn.MSELoss())
        self.assertEqual([point["batch"] for point in profile["rest"]], [2, 4])
        with self.assertRaisesRegex(RuntimeError, "Sequential makes no step with 1 samples, made of the 4 of the sample"):
            self.profile(net, small_sample(4), loss=nn.MSELoss(), batches=(1, 2))

    def test_the_model_stays_as_it_was(self):
        net = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), nn.Dropout()).eval()
        net[0].weight.grad = torch.ones(4, 8)
        before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
        parameters, sample, state = list(net.parameters()), small_sample(), torch.get_rng_state()
        self.profile(net, sample, loss=nn.MSELoss(), batches=(2, 4))
        for name, tensor in net.state_dict().items():
            self.assertTrue(torch.equal(tensor, before[name]), name)
        self.assertTrue(all(one is other for one, other in zip(net.parameters(), parameters)))
        self.assertEqual([part.training for part in net.modules()], [False] * 4)
        self.assertTrue(torch.equal(net[0].weight.grad, torch.ones(4, 8)))
        self.assertIsNone(net[0].bias.grad)
        self.assertTrue(torch.equal(torch.get_rng_state(), state))
        self.assertFalse(net[0]._forward_hooks or net[0]._forward_pre_hooks)

    def test_the_planner_answers_and_refuses_what_one_place_does_not_tell(self):
        self.small()
        possible, impossible = self.ways("--nodes", "1,2", "--places", "1,2")
        self.assertEqual(possible, {"serial", "ddp", "fsdp"})
        self.assertIn("says nothing about several places of a node", impossible["pp x 2 (1f1b, 2 chunks)"])
        self.assertIn("--within", impossible["ddp x 4"])
        possible, impossible = self.ways("--places", "1,2", "--within", "10GB,20us")
        self.assertLessEqual({"serial", "ddp", "fsdp", "pp"}, possible)
        self.assertEqual(impossible, {})
        _, impossible = self.ways("--places", "2", "--within", "10GB,20us", "--ways", "pp", "--schedule", "zero-bubble")
        self.assertIn("no halves of backward", next(iter(impossible.values())))
        self.assertEqual(self.plan("--device", "T4", "--places", "1,2")["device"], "T4")

    def test_two_processes_tell_what_they_cost_each_other(self):
        multiprocessing.spawn(profile_in_pair, (str(self.folder),), nprocs=2)
        self.assertFalse((self.folder / "1.json").exists(), "rank 0 writes")
        self.path = self.folder / "0.json"
        profile = json.loads(self.path.read_text())
        self.assert_small(profile)
        self.assertEqual([len(profile["company"][kind]) for kind in ("compute", "memory")], [2, 2])
        self.assertEqual(profile["within"]["core_share"], 1)
        self.assertIn("two processes, gloo", profile["source"])
        possible, impossible = self.ways("--places", "1,2")
        self.assertLessEqual({"serial", "ddp", "fsdp", "pp"}, possible)
        self.assertEqual(impossible, {})

    def test_both_of_two_processes_end_if_one_cannot_measure(self):
        multiprocessing.spawn(refuse_in_pair, (str(self.folder),), nprocs=2)

    def test_what_cannot_be_profiled_is_named(self):
        x, y = small_sample(4)
        frozen = small_net().requires_grad_(False)
        scattered = small_net()
        scattered[2].to("meta")
        mse = {"loss": nn.MSELoss()}
        nested = {**mse, "units": ["body", "body.*"]}
        for error, text, model, sample, options in (
                (TypeError, "the model is a function, not a torch.nn.Module", mean, x, {}),
                (TypeError, r"Sequential returns a tensor of \[\d, 4\], and no loss: pass loss=", small_net(), x, {}),
                (TypeError, r"Sequential.forward\(\) cannot take the 2 tensors of sample: too many .*; if it is \(inputs, targets\), pass loss=",
                 small_net(), (x, y), {}),
                (TypeError, "LanguageModel returns a dict without .*labels=", LanguageModel(), torch.randint(10, (4, 5)), {}),
                (TypeError, r"the loss <lambda> returns a tensor of \[\d, 4\]", small_net(), (x, y), {"loss": lambda a, b: a - b}),
                (TypeError, "what the loss <lambda> returns has no gradient", small_net(), (x, y), {"loss": lambda a, b: a.detach().sum()}),
                (TypeError, "a pair of inputs and targets, not Tensor", small_net(), x, mse),
                (TypeError, "input 1 of the sample is a int", small_net(), (x, 1), {}),
                (ValueError, r"\[\]", small_net(), (x[0, 0], y), mse),
                (ValueError, r"\[4, 8\], \[2, 4\]", small_net(), (x, y[:2]), mse),
                (ValueError, r"\[0, 8\]", small_net(), x[:0], {}),
                (ValueError, "all have requires_grad=False", frozen, (x, y), mse),
                (ValueError, "they are on cpu and meta", scattered, (x, y), mse),
                (ValueError, "they are on none", nn.ReLU(), (x, x), mse),
                (ValueError, "no module is named 'layer.*'; the model has 0, 1, 2", small_net(), (x, y), {**mse, "units": "layer.*"}),
                (ValueError, "the unit body.embedding is within the unit body", LanguageModel(), (x, y), nested),
                (ValueError, "different whole numbers from 1", small_net(), (x, y), {**mse, "batches": (2, 2)}),
                (ValueError, "different whole numbers from 1", small_net(), (x, y), {**mse, "batches": ()}),
                (ValueError, "different whole numbers from 1, such as", small_net(), (x, y), {**mse, "batches": 4}),
                (ValueError, "different whole numbers from 1", small_net(), (x, y), {**mse, "batches": (True, 3)}),
                (ValueError, "the precision is 32 or bf16-mixed, not fp8", small_net(), (x, y), {**mse, "precision": "fp8"}),
                (RuntimeError, "TwoRows makes no step with 4 samples, made of the 2 of the sample by", TwoRows(), (x[:2], y[:2]), mse),
                (RuntimeError, "other units from step to step", Whims(), (x, x), mse)):
            with self.subTest(text), self.assertRaisesRegex(error, "^lockstep.profile: .*" + text):
                self.profile(model, sample, **options)
            self.assertFalse(self.path.exists())


if __name__ == "__main__":
    unittest.main()
