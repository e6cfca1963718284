#!/usr/bin/env python3
"""Counts the profiles that come with `lockstep plan`, and writes them where the program is built from.

    peer/bin/python benchmarks/counted_profiles.py [NAME ...]
    peer/bin/python benchmarks/counted_profiles.py --check

Nets are made by torchvision and transformers on the meta device, and counted by lockstep.profile(): nothing is trained, no weights
are loaded. A layer is a block, or a convolution or linear layer with what follows it; what the planner does not read is left out.
--check writes nothing, and ends with 1 where a file differs from what is counted now. Needs torch, torchvision and transformers.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import torch
import torchvision
import transformers
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "bench/cli/plan/profiles"
sys.path.insert(0, str(ROOT / "python"))

import lockstep

# The activation is that of OpenAI, computed by one kernel.
GPT = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0, "activation_function": "gelu_pytorch_tanh"}
GPT_UNITS = ("transformer.wte", "transformer.h.*", "lm_head")
LLAMA_UNITS = ("model.embed_tokens", "model.layers.*", "lm_head")
BERT_UNITS = ("bert.embeddings", "bert.encoder.layer.*", "cls")


def images(name, units=None):
    """Of 224 pixels, in 1000 classes."""
    net = getattr(torchvision.models, name)()
    units = units or [name for name, part in net.named_modules() if isinstance(part, (nn.Conv2d, nn.Linear))]
    return net, (torch.zeros(2, 3, 224, 224), torch.zeros(2, dtype=torch.long)), units


def resnet(name):
    return images(name, ["conv1", "layer?.*", "fc"])


def cifar_resnet18():
    net, (_, targets), units = resnet("resnet18")
    net.conv1, net.maxpool, net.fc = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity(), nn.Linear(512, 10)
    return net, (torch.zeros(2, 3, 32, 32), targets), units


def tokens(kind, config, length, units):
    """The targets are the tokens themselves, all of them: what they are changes no count."""
    sample = torch.zeros(2, length, dtype=torch.long)
    return kind._from_config(config, attn_implementation="sdpa"), {"input_ids": sample, "labels": sample}, units


def gpt2(layers, heads, width):
    config = transformers.GPT2Config(n_layer=layers, n_head=heads, n_embd=width, **GPT)
    return tokens(transformers.GPT2LMHeadModel, config, 1024, GPT_UNITS)


def bert(layers, heads, width):
    config = transformers.BertConfig(num_hidden_layers=layers, num_attention_heads=heads, hidden_size=width, intermediate_size=4 * width,
                                     attention_probs_dropout_prob=0)
    return tokens(transformers.BertForMaskedLM, config, 512, BERT_UNITS)


def llama(layers, heads, key_heads, width, hidden, words, length, tied=False):
    config = transformers.LlamaConfig(num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=key_heads, hidden_size=width,
                                      intermediate_size=hidden, vocab_size=words, max_position_embeddings=length, tie_word_embeddings=tied,
                                      use_cache=False)
    return tokens(transformers.LlamaForCausalLM, config, length, LLAMA_UNITS)


NETS = {
    "resnet18": lambda: resnet("resnet18"),
    "resnet18-cifar": cifar_resnet18,
    "resnet34": lambda: resnet("resnet34"),
    "resnet101": lambda: resnet("resnet101"),
    "resnet152": lambda: resnet("resnet152"),
    "vgg16": lambda: images("vgg16"),
    "vgg19": lambda: images("vgg19"),
    "vit-b16": lambda: images("vit_b_16", ["conv_proj", "encoder.layers.*", "heads"]),
    "bert-base": lambda: bert(12, 12, 768),
    "bert-large": lambda: bert(24, 16, 1024),
    "gpt2": lambda: gpt2(12, 12, 768),
    "gpt2-medium": lambda: gpt2(24, 16, 1024),
    "gpt2-large": lambda: gpt2(36, 20, 1280),
    "gpt2-xl": lambda: gpt2(48, 25, 1600),
    "gpt-1.3b": lambda: gpt2(24, 16, 2048),
    "llama-110m": lambda: llama(12, 12, 12, 768, 2048, 32000, 1024, tied=True),
    "llama-2-7b": lambda: llama(32, 32, 32, 4096, 11008, 32000, 4096),
    "llama-3-8b": lambda: llama(32, 32, 8, 4096, 14336, 128256, 8192),
    "llama-3-70b": lambda: llama(80, 64, 8, 8192, 28672, 128256, 8192),
    "llama-3.2-1b": lambda: llama(16, 32, 8, 2048, 8192, 128256, 8192, tied=True),
}


def whole(value):
    """Numbers without a fraction are written as such."""
    if isinstance(value, dict):
        return {key: whole(each) for key, each in value.items()}
    if isinstance(value, list):
        return [whole(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def counted(name):
    """Returns the text of a net's profile."""
    with torch.device("meta"):
        net, sample, units = NETS[name]()
    loss = None if isinstance(sample, dict) else nn.functional.cross_entropy
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profile.json"
        lockstep.profile(net, sample, loss=loss, batches=(1, 2), units=units, name=name, path=path)
        profile = json.loads(path.read_text(encoding="utf-8"))
    for layer in profile["layers"]:
        del layer["flops"], layer["product_flops"]
    return json.dumps(whole(profile), separators=(",", ":")) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", metavar="NAME", nargs="*", help=f"of {', '.join(NETS)}; all without")
    parser.add_argument("--check", action="store_true", help="only compare with the files")
    arguments = parser.parse_args()
    differ = []
    for name in arguments.names or NETS:
        file, text = FOLDER / f"{name}.json", counted(name)
        if not arguments.check:
            file.write_text(text, encoding="utf-8")
        elif not file.is_file() or file.read_text(encoding="utf-8") != text:
            differ.append(name)
    if differ:
        sys.exit(f"not as they are counted now: {', '.join(differ)}")


if __name__ == "__main__":
    main()
