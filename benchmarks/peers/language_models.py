"""Trains a language model of transformers in Python PyTorch, as nanoGPT's loop does, and prints the seconds of a step.

    python language_models.py --net gpt2 --data train.bin --batch 4 --length 256 --ranks 1 --threads 2 --compile

Sequences are drawn from a file of uint16 tokens. Attention is PyTorch's scaled_dot_product_attention, AdamW is fused, matrices alone
decay, malloc is tuned. Rank 0 ends with a line of JSON. Needs torch and transformers.
"""

import argparse
import json
import os
import time

from ranks import MALLOC, leave, shared_by_blocks, start_ranks


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", choices=["gpt2", "llama-15m"], required=True)
    parser.add_argument("--data", metavar="FILE", required=True)
    parser.add_argument("--words", type=int, required=True, help="of the vocabulary")
    parser.add_argument("--batch", type=int, required=True, help="sequences of all ranks together")
    parser.add_argument("--length", type=int, required=True)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--lines", type=int, default=6, help="so many times are taken")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2, help="of each rank")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--sharded", action="store_true", help="FSDP2 in place of DDP")
    return parser.parse_args()


arguments = parse_arguments()
if "RANK" not in os.environ:
    start_ranks(arguments.ranks, **MALLOC, OMP_NUM_THREADS=str(arguments.threads))

import numpy
import torch
import torch.distributed as dist
import transformers
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel


def net_of(name):
    if name == "gpt2":
        config = transformers.GPT2Config(vocab_size=arguments.words, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
        return transformers.GPT2LMHeadModel._from_config(config, attn_implementation="sdpa")
    sizes = {"hidden_size": 288, "intermediate_size": 768, "num_hidden_layers": 6, "num_attention_heads": 6, "max_position_embeddings": 256}
    config = transformers.LlamaConfig(vocab_size=arguments.words, rms_norm_eps=1e-5, tie_word_embeddings=True, **sizes)
    return transformers.LlamaForCausalLM._from_config(config, attn_implementation="sdpa")


def spread(net, world):
    """Returns the net as the ranks train it together."""
    if world == 1:
        return net
    return shared_by_blocks(net, world) if arguments.sharded else DistributedDataParallel(net, gradient_as_bucket_view=True, static_graph=True)


def optimizer_of(net):
    groups = [{"params": [p for p in net.parameters() if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in net.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), fused=True)


def batch_of(tokens, sequences):
    firsts = torch.randint(len(tokens) - arguments.length - 1, (sequences,))
    rows = torch.stack([torch.from_numpy(tokens[first : first + arguments.length + 1].astype(numpy.int64)) for first in firsts])
    return rows[:, :-1], rows[:, 1:]


def main():
    torch.set_flush_denormal(True)  # as Lockstep does
    torch.set_num_threads(arguments.threads)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    torch.manual_seed(rank)
    net = net_of(arguments.net).train()
    model = spread(net, world)
    model = torch.compile(model) if arguments.compile else model
    optimizer, tokens, seconds = optimizer_of(net), numpy.memmap(arguments.data, dtype=numpy.uint16, mode="r"), []
    for _ in range(arguments.lines):
        start = time.perf_counter()
        for _ in range(arguments.steps // arguments.lines):
            x, target = batch_of(tokens, arguments.batch // world)
            optimizer.zero_grad()
            F.cross_entropy(model(x, use_cache=False).logits.flatten(0, 1), target.flatten()).backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
        seconds.append((time.perf_counter() - start) / (arguments.steps // arguments.lines))
    if rank == 0:
        print(json.dumps({"seconds": seconds}))
    leave()


if __name__ == "__main__":
    main()
