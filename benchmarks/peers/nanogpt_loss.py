"""Prints the loss of nanoGPT's last checkpoint over all of val.bin, in sequences that follow each other.

    python nanogpt_loss.py CHECKOUT OUT_DIR val.bin
"""

import sys

import numpy
import torch

checkout, folder, data = sys.argv[1:]
sys.path.insert(0, checkout)
from model import GPT, GPTConfig

checkpoint = torch.load(f"{folder}/ckpt.pt", weights_only=False)
net = GPT(GPTConfig(**checkpoint["model_args"]))
net.load_state_dict({name.removeprefix("_orig_mod."): value for name, value in checkpoint["model"].items()})
net.eval()
tokens = torch.from_numpy(numpy.fromfile(data, dtype=numpy.uint16).astype(numpy.int64))
length = checkpoint["model_args"]["block_size"]
count = (len(tokens) - 1) // length
x, target = tokens[: count * length].view(count, length), tokens[1 : count * length + 1].view(count, length)
with torch.no_grad():
    losses = [net(*part)[1] * len(part[0]) for part in zip(x.split(64), target.split(64))]
print(float(sum(losses) / count))
