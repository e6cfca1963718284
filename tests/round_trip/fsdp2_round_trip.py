"""PyTorch's FSDP2 and `lockstep train --parallel fsdp` train the same net to the same weights."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

from programs import lockstep

SAMPLES, BATCH, STEPS, RANKS, SEED = 48, 4, 20, 2, 7
TOLERANCE = 1e-6
WORDS, LENGTH, WIDTH, CLASSES = 11, 6, 24, 5
OPTIMIZERS = {"sgd": (lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=0.01),
                      ["--opt", "sgd", "--lr", "0.05", "--momentum", "0.9", "--weight-decay", "0.01"]),
              "adamw": (lambda parameters: torch.optim.AdamW(parameters, lr=0.003, weight_decay=0.1),
                        ["--opt", "adamw", "--lr", "0.003", "--opt-eps", "1e-8", "--weight-decay", "0.1"])}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(3 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    """A mean of embedded words through blocks; sizes that ranks cannot share evenly leave padding in shards."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        x = self.words(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


def make_net(kind):
    torch.manual_seed(SEED)
    return Net().to(kind)


def write_data(folder, kind):
    torch.manual_seed(SEED + 1)
    words = torch.randint(WORDS, (SAMPLES, LENGTH))
    data = {"x": words, "target": words.sum(1) % CLASSES}
    for part in "train", "test":
        save_file(data, folder / f"{part}.safetensors")
    shapes = ({0: torch.export.Dim("batch", min=2)},)
    torch.export.save(torch.export.export(make_net(kind).train(), (words[:BATCH],), dynamic_shapes=shapes), folder / "net.pt2")


def train_rank(folder, kind, optimizer):
    """Trains by FSDP2 as one of the ranks; rank 0 writes losses and weights."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor
    from torch.utils.data import DistributedSampler

    dist.init_process_group("gloo")
    net, data = make_net(kind), load_file(folder / "train.safetensors")
    for block in net.blocks:
        fully_shard(block)
    fully_shard(net)
    sampler, steps = DistributedSampler(range(SAMPLES), seed=SEED), optimizer(net.parameters())
    losses = []
    while len(losses) < STEPS:
        sampler.set_epoch(len(losses) // (SAMPLES // BATCH // RANKS))
        for batch in torch.tensor(list(sampler)).split(BATCH):
            if len(losses) == STEPS:
                break
            steps.zero_grad()
            loss = F.cross_entropy(net(data["x"][batch]), data["target"][batch])
            loss.backward()
            steps.step()
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            losses.append(mean.item() / RANKS)
    state = {name: value.full_tensor() if isinstance(value, DTensor) else value for name, value in net.state_dict().items()}
    if dist.get_rank() == 0:
        save_file(state, folder / "fsdp2.safetensors")
        (folder / "fsdp2.json").write_text(json.dumps(losses))
    dist.barrier()
    os._exit(0)  # the optimizer makes PyTorch keep the group, whose threads may call std::terminate at an ordinary end


def train_by_python(folder, kind, optimizer):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS), __file__,
               str(folder), str(kind).removeprefix("torch."), optimizer]
    subprocess.run(command, check=True, capture_output=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return json.loads((folder / "fsdp2.json").read_text()), load_file(folder / "fsdp2.safetensors")


def train_by_lockstep(folder, flags):
    run = folder / "run"
    lockstep("train", "--model", folder / "net.pt2", "--data", f"tensors:{folder}", "--inputs", "x", "--task", "classification",
             "--nproc-per-node", RANKS, "--parallel", "fsdp", "--batch-size", BATCH, "--seed", SEED, "--epochs", STEPS, "--max-steps", STEPS,
             "--log-interval", 1, "--val-interval", "never", "--progress", "none", "--json", "--output", run, *flags)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if line["split"] == "train"], load_file(run / "model.safetensors")


class Fsdp2RoundTrip(unittest.TestCase):
    def compare(self, kind, name):
        optimizer, flags = OPTIMIZERS[name]
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            write_data(folder, kind)
            losses, weights = train_by_python(folder, kind, name)
            own_losses, own_weights = train_by_lockstep(folder, flags)
        self.assertEqual(len(own_losses), STEPS)
        torch.testing.assert_close(torch.tensor(own_losses), torch.tensor(losses), rtol=0, atol=TOLERANCE)
        self.assertEqual(own_weights.keys(), weights.keys())
        for weight, value in weights.items():
            torch.testing.assert_close(own_weights[weight], value, rtol=0, atol=TOLERANCE, msg=weight)
        self.assertLess(losses[-1], losses[0])

    def test_sgd(self):
        self.compare(torch.float32, "sgd")

    # In fp32 the first steps of Adam depend on the sign of gradients that are nearly 0.
    def test_adamw(self):
        self.compare(torch.float64, "adamw")


if __name__ == "__main__":
    if len(sys.argv) == 4 and "RANK" in os.environ:
        train_rank(Path(sys.argv[1]), getattr(torch, sys.argv[2]), OPTIMIZERS[sys.argv[3]][0])
    unittest.main()
