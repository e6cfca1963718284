"""Nets of torchvision, timm and transformers with random weights: exports one, trains it, and writes what came out.

    python exported_nets.py --net resnet18 --output FOLDER [--type float64] [--steps 20] [--lr 0.01] [--keep-dropout]
    python exported_nets.py --list

FOLDER then has NET.pt2, exported in training, and NET.safetensors with inputs, target, losses, the first output in evaluation,
and parameters and buffers after SGD on the mean squared error. Dropouts get a probability of 0, unless they are kept: then the
drawn numbers are those of seed 1. Needs torch, torchvision, timm, transformers and safetensors.
"""

import argparse
import os

import torch
from safetensors.torch import save_file
from torch.export import Dim
from torch.nn import functional as F

BATCH = Dim("batch", min=1)
WORDS = 100


def images(side=64, count=2, channels=3):
    return (torch.randn(count, channels, side, side),), ({0: BATCH},)


def ids(*lengths, count=2, varies=True):
    names = ("length", "other")
    dims = tuple({0: BATCH, 1: Dim(name, min=2, max=max(64, length))} if varies else {0: BATCH} for length, name in zip(lengths, names))
    return tuple(torch.randint(0, WORDS, (count, length)) for length in lengths), dims


def of_timm(name, side=64, **settings):
    import timm

    return timm.create_model(name, num_classes=10, **settings), *images(side)


def of_torchvision(name, side=64, **settings):
    import torchvision

    return getattr(torchvision.models, name)(num_classes=10, **settings), *images(side)


class Logits(torch.nn.Module):
    """A model of transformers that takes tensors in order and returns its logits."""

    def __init__(self, model, *names, **constants):
        super().__init__()
        self.model, self.names, self.constants = model, names, constants

    def forward(self, *inputs):
        return self.model(**dict(zip(self.names, inputs)), **self.constants)[0]


def of_transformers(family, head, *names, lengths=(16,), cache=True, vocab=WORDS, **settings):
    import transformers

    config = getattr(transformers, family + "Config")(
        vocab_size=vocab, bos_token_id=1, eos_token_id=2, pad_token_id=0, **settings)
    model = getattr(transformers, head)(config)
    return Logits(model, *names, **({"use_cache": False} if cache else {})), *ids(*lengths)


SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


class Tagger(torch.nn.Module):
    """A label for each word."""

    def __init__(self, kind, width=16):
        super().__init__()
        self.embed = torch.nn.Embedding(WORDS, width)
        self.layers = getattr(torch.nn, kind)(width, width, 2, batch_first=True, dropout=0.1, bidirectional=True)
        self.head = torch.nn.Linear(2 * width, 5)

    def forward(self, words):
        return self.head(self.layers(self.embed(words))[0])


class UNet(torch.nn.Module):
    """Two levels down and up, joined by what skips the lower one."""

    def __init__(self, width=8):
        super().__init__()

        def block(inputs, outputs):
            return torch.nn.Sequential(torch.nn.Conv2d(inputs, outputs, 3, padding=1), torch.nn.BatchNorm2d(outputs), torch.nn.ReLU())

        self.first, self.second, self.bottom = block(3, width), block(width, 2 * width), block(2 * width, 4 * width)
        self.up, self.join = torch.nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2), block(4 * width, width)
        self.head = torch.nn.Conv2d(2 * width, 2, 1)

    def forward(self, x):
        first = self.first(x)
        second = self.second(F.max_pool2d(first, 2))
        joined = self.join(torch.cat([self.up(self.bottom(F.max_pool2d(second, 2))), second], 1))
        larger = F.interpolate(joined, size=first.shape[-2:], mode="bilinear", align_corners=False)
        return self.head(torch.cat([larger, first], 1))


class Encoder(torch.nn.Module):
    """PyTorch's own transformer, with a mask."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(WORDS, 32)
        layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(32, 5)

    def forward(self, words):
        mask = torch.triu(torch.full((words.shape[1], words.shape[1]), float("-inf"), dtype=self.head.weight.dtype), 1)
        return self.head(self.layers(self.embed(words), mask=mask, is_causal=True).mean(1))


class Autoencoder(torch.nn.Module):
    """Convolutions to a code and back, with norms of instances and of groups."""

    def __init__(self):
        super().__init__()
        self.encode = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, 2, 1), torch.nn.InstanceNorm2d(8, affine=True, track_running_stats=True), torch.nn.PReLU(),
            torch.nn.Conv2d(8, 16, 3, 2, 1), torch.nn.GroupNorm(4, 16), torch.nn.SiLU())
        self.decode = torch.nn.Sequential(
            torch.nn.ConvTranspose2d(16, 8, 4, 2, 1), torch.nn.ELU(), torch.nn.Upsample(scale_factor=2), torch.nn.Conv2d(8, 3, 3, 1, 1))

    def forward(self, x):
        return self.decode(self.encode(x))


def segmentation(name):
    import torchvision

    class Scores(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = getattr(torchvision.models.segmentation, name)(weights=None, weights_backbone=None, num_classes=5)

        def forward(self, x):
            return self.net(x)["out"]

    return Scores(), *images()


NETS = {
    "resnet18": lambda: of_torchvision("resnet18"),
    "resnet50": lambda: of_timm("resnet50"),
    "vgg11": lambda: of_torchvision("vgg11", side=32),
    "vgg11_bn": lambda: of_torchvision("vgg11_bn", side=32),
    "alexnet": lambda: of_torchvision("alexnet"),
    "squeezenet": lambda: of_torchvision("squeezenet1_1"),
    "densenet121": lambda: of_timm("densenet121", growth_rate=8),
    "mobilenet_v2": lambda: of_torchvision("mobilenet_v2"),
    "mobilenet_v3_small": lambda: of_timm("mobilenetv3_small_050"),
    "shufflenet_v2": lambda: of_torchvision("shufflenet_v2_x0_5"),
    "mnasnet": lambda: of_torchvision("mnasnet0_5"),
    "efficientnet_b0": lambda: of_timm("efficientnet_b0"),
    "regnety_002": lambda: of_timm("regnety_002"),
    "convnext_atto": lambda: of_timm("convnext_atto"),
    "convnextv2_atto": lambda: of_timm("convnextv2_atto"),
    "vit_tiny": lambda: of_timm("vit_tiny_patch16_224", img_size=64, depth=4),
    "deit_tiny": lambda: of_timm("deit_tiny_distilled_patch16_224", img_size=64, depth=4),
    "swin": lambda: of_timm("swin_tiny_patch4_window7_224", 56, img_size=56, embed_dim=24, depths=(1, 1, 2, 1), num_heads=(1, 2, 4, 8),
                            drop_path_rate=0.0),
    "mixer": lambda: of_timm("mixer_s32_224", img_size=64),
    "maxvit": lambda: of_timm("maxvit_rmlp_pico_rw_256", img_size=64),
    "resmlp": lambda: of_timm("resmlp_12_224", img_size=64),
    "poolformer": lambda: of_timm("poolformer_s12"),
    "ghostnet": lambda: of_timm("ghostnet_050"),
    "xcit": lambda: of_timm("xcit_nano_12_p16_224", img_size=64),
    "coatnet": lambda: of_timm("coatnet_nano_rw_224", img_size=64),
    "inception_v4": lambda: of_timm("inception_v4", 96),
    "fcn_resnet50": lambda: segmentation("fcn_resnet50"),
    "deeplabv3_mobilenet": lambda: segmentation("deeplabv3_mobilenet_v3_large"),
    "unet": lambda: (UNet(), *images(32)),
    "autoencoder": lambda: (Autoencoder(), *images(32)),
    "lstm_tagger": lambda: (Tagger("LSTM"), *ids(16, varies=False)),
    "gru_tagger": lambda: (Tagger("GRU"), *ids(16, varies=False)),
    "transformer_encoder": lambda: (Encoder(), *ids(16)),
    "gpt2": lambda: of_transformers("GPT2", "GPT2LMHeadModel", "input_ids", n_layer=2, n_head=2, n_embd=32, n_positions=64),
    "gpt_neox": lambda: of_transformers("GPTNeoX", "GPTNeoXForCausalLM", "input_ids", max_position_embeddings=64, **SMALL),
    "llama": lambda: of_transformers("Llama", "LlamaForCausalLM", "input_ids", num_key_value_heads=2, max_position_embeddings=64, **SMALL),
    "mistral": lambda: of_transformers("Mistral", "MistralForCausalLM", "input_ids", num_key_value_heads=2, max_position_embeddings=64,
                                       sliding_window=8, head_dim=8, **SMALL),
    "bert": lambda: of_transformers("Bert", "BertForSequenceClassification", "input_ids", cache=False, max_position_embeddings=64,
                                    num_labels=10, **SMALL),
    "distilbert": lambda: of_transformers("DistilBert", "DistilBertForSequenceClassification", "input_ids", cache=False, dim=32, n_layers=2,
                                          n_heads=2, hidden_dim=64, max_position_embeddings=64, num_labels=10),
    "t5": lambda: of_transformers("T5", "T5ForConditionalGeneration", "input_ids", "decoder_input_ids", lengths=(16, 12), num_layers=2,
                                  d_model=32, d_kv=16, num_heads=2, d_ff=64),
    "bart": lambda: of_transformers("Bart", "BartForConditionalGeneration", "input_ids", "decoder_input_ids", lengths=(16, 12),
                                    d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2,
                                    encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=64),
}


def turn_dropouts_off(module):
    for part in module.modules():
        for name, value in vars(part).items():
            if isinstance(value, float) and (name == "p" or "drop" in name):
                setattr(part, name, 0.0)


def trained(module, inputs, target, steps, lr):
    optimizer = torch.optim.SGD(module.parameters(), lr=lr)
    losses = []
    torch.manual_seed(1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.mse_loss(module(*inputs), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    if not loss.isfinite():
        raise SystemExit("Python's training diverges; take a smaller --lr")
    return torch.stack(losses)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--net", choices=NETS)
    parser.add_argument("--output")
    parser.add_argument("--type", choices=["float32", "float64"], default="float64")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--keep-dropout", action="store_true")
    given = parser.parse_args()
    if given.list:
        print("\n".join(NETS))
        return
    torch.set_num_threads(1)
    torch.manual_seed(0)
    module, inputs, dims = NETS[given.net]()
    if not given.keep_dropout:
        turn_dropouts_off(module)
    kind = getattr(torch, given.type)
    module = module.to(kind).train()
    inputs = tuple(x.to(kind) if x.is_floating_point() else x for x in inputs)
    program = torch.export.export(module, inputs, dynamic_shapes=(dims,) if isinstance(module, Logits) else dims)
    base = os.path.join(given.output, given.net)
    torch.export.save(program, base + ".pt2")
    tensors = {f"input.{i}": x.clone() for i, x in enumerate(inputs)}
    with torch.no_grad():
        tensors["eval.before"] = module.eval()(*inputs).contiguous()
    tensors["target"] = torch.randn_like(tensors["eval.before"])
    tensors["losses"] = trained(module.train(), inputs, tensors["target"], given.steps, given.lr)
    tensors |= {"after." + name: value.detach().clone().contiguous() for name, value in module.state_dict().items()}
    save_file(tensors, base + ".safetensors")


if __name__ == "__main__":
    main()
