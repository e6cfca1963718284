#!/usr/bin/env python3
"""Makes numbers/language_models.txt with transformers: language_models.py > numbers/language_models.txt.

GPT-2 and Llama of small shapes in float64, with weights by formula, for tests/nn/language_models_test.cpp. Rows of a net:

    NAME_logits     the scores of two sequences of 6 tokens, 37 words
    NAME_loss       their mean cross entropy
    NAME_tensors    how many tensors its files have
    NAME:TENSOR     of a tensor of its files: its sizes; sum and norm of its gradient

transformers computes Llama's norms, and the sines of its angles, in float32 whatever the net is of; here both are in float64, the
angles themselves stay as they are.
"""

import torch
import transformers
from formulas import flat, formula, show
from torch.nn import functional
from transformers.models.llama import modeling_llama

WORDS, LENGTH = 37, 6


def exact_norm(self, hidden):
    return functional.rms_norm(hidden, self.weight.shape, self.weight, self.variance_epsilon)


def exact_turns(self, hidden, position_ids):
    angles = (position_ids[..., None].float() * self.inv_freq.float()).to(hidden.dtype)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def gpt2():
    sizes = {"n_layer": 4, "n_head": 4, "n_embd": 128, "n_positions": 256}
    config = transformers.GPT2Config(vocab_size=WORDS, bos_token_id=0, eos_token_id=0, **sizes)
    return transformers.GPT2LMHeadModel(config)


def llama():
    modeling_llama.LlamaRMSNorm.forward = exact_norm
    modeling_llama.LlamaRotaryEmbedding.forward = exact_turns
    sizes = {"num_hidden_layers": 5, "num_attention_heads": 8, "num_key_value_heads": 4}
    sizes |= {"hidden_size": 64, "intermediate_size": 172, "max_position_embeddings": 512}
    config = transformers.LlamaConfig(vocab_size=WORDS, rms_norm_eps=1e-5, tie_word_embeddings=True, **sizes)
    return transformers.LlamaForCausalLM(config)


def rows_of(name, net):
    net = net.double().eval()
    parameters = dict(net.named_parameters())  # as in its files: tied weights once
    with torch.no_grad():
        for place, parameter in enumerate(parameters.values()):
            parameter.copy_(formula(parameter.numel(), place).view_as(parameter) * 0.2)
    numbers = torch.arange(2 * (LENGTH + 1)) * 7 % WORDS
    tokens = numbers.view(2, LENGTH + 1)
    logits = net(tokens[:, :-1]).logits
    loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    yield f"{name}_logits", flat([logits])
    yield f"{name}_loss", flat([loss])
    yield f"{name}_tensors", [len(parameters)]
    for key, parameter in parameters.items():
        gradient = parameter.grad
        yield f"{name}:{key}", [*parameter.shape, gradient.sum().item(), gradient.norm().item()]


if __name__ == "__main__":
    made_with = f"torch {torch.__version__} and transformers {transformers.__version__}"
    show([*rows_of("gpt2-nano", gpt2()), *rows_of("llama-260k", llama())], made_with)
