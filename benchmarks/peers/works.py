"""The trainings that against_pytorch.py and full_sharding.py time: a net, what it learns from, and the batch of all ranks together.

Needs nothing but Python; the functions that make nets need torch, and torchvision, timm or transformers.
"""

from dataclasses import dataclass
from typing import Callable


@dataclass(frozen=True)
class Work:
    make: Callable  # returns the net, inputs of two samples, and their dynamic sizes
    batch: int
    steps: int  # of a run; PyTorch then takes about five seconds on two cores
    classes: int = 10
    target: str = "class"  # or "tokens", a class of each word, or "pixels"
    words: int = 100  # of the vocabulary
    optimizer: str = "sgd"
    model: str = ""  # Lockstep's name of the net; without one it is exported
    side: int = 0  # of the images of such a net
    augment: str = "none"
    flags: str = ""  # more of Lockstep's
    ranks: tuple = (1, 2)  # of which each side takes the best

    def flags_of_lockstep(self, folder):
        """Returns the flags of `lockstep train` for the net and its data, of which nets.py has written into the folder what is exported."""
        net = ["--model", f"{folder}/net.pt2", "--data", f"tensors:{folder}/train.safetensors,{folder}/test.safetensors"]
        if self.model:
            net = ["--model", self.model, "--image-size", self.side, "--data", "mock", "--augment", self.augment]
        return [*map(str, net), "--num-classes", str(self.classes), *self.flags.split()]


def nets():
    import exported_nets

    return exported_nets


def of_lockstep(model, side, batch, steps, classes=10, **more):
    def make():
        import catalogue

        return catalogue.make_net(model, classes), *nets().images(side, channels=1 if model.startswith("mnist") else 3)

    return Work(make, batch, steps, classes, model=model, side=side, optimizer="adam", **more)


def gpt2(length, words, **settings):
    return nets().of_transformers("GPT2", "GPT2LMHeadModel", "input_ids", lengths=(length,), vocab=words, n_positions=length, **settings)


def gpt_10m(dropout=0.0):
    """Returns the net that nanoGPT trains on Shakespeare's letters, there with a dropout of 0.2."""
    return gpt2(256, 65, n_layer=6, n_head=6, n_embd=384, resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout)


def bert():
    return nets().of_transformers("Bert", "BertForSequenceClassification", "input_ids", lengths=(64,), cache=False, vocab=4000, hidden_size=256,
                                  num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024, max_position_embeddings=64, num_labels=10)


def llama():
    return nets().of_transformers("Llama", "LlamaForCausalLM", "input_ids", lengths=(64,), vocab=4000, hidden_size=256, num_hidden_layers=4,
                                  num_attention_heads=4, num_key_value_heads=2, intermediate_size=1024, max_position_embeddings=64)


def swin():
    return nets().of_timm("swin_tiny_patch4_window7_224", 112, img_size=112, embed_dim=48, depths=(1, 1, 2, 1), num_heads=(2, 4, 8, 16),
                          drop_path_rate=0.0)


TWELVE = {
    "mnist-small": of_lockstep("mnist-small", 28, 256, 180),
    "mnist-large": of_lockstep("mnist-large", 28, 256, 6),
    "resnet18": of_lockstep("resnet18", 32, 256, 12),
    "resnet50": of_lockstep("resnet50", 224, 16, 6),
    "vgg19": of_lockstep("vgg19", 64, 32, 6, classes=200),
    "mobilenet_v3": Work(lambda: nets().of_timm("mobilenetv3_small_100", 96), 64, 36),
    "efficientnet_b0": Work(lambda: nets().of_timm("efficientnet_b0"), 32, 30),
    "convnext_atto": Work(lambda: nets().of_timm("convnext_atto"), 64, 24),
    "vit_tiny": Work(lambda: nets().of_timm("vit_tiny_patch16_224", img_size=64, patch_size=8), 16, 18),
    "gpt_10m": Work(gpt_10m, 8, 6, 65, "tokens", words=65, optimizer="adamw"),
    "lstm_tagger": Work(lambda: (nets().Tagger("LSTM", 256), *nets().ids(32, varies=False)), 64, 24, 5, "tokens"),
    "unet": Work(lambda: (nets().UNet(32), *nets().images(96)), 8, 60, 2, "pixels"),
}
MORE = {
    "resnet18-timm": of_lockstep("resnet18", 32, 256, 12, augment="timm"),
    "resnet18-cifar": of_lockstep("resnet18-cifar", 32, 256, 6),
    "resnet18-exported": Work(lambda: nets().of_torchvision("resnet18"), 32, 30),
    "resnet50-exported": Work(lambda: nets().of_timm("resnet50"), 16, 18),
    # A pipeline of two places in one process against the best single process.
    "resnet50-pipeline": of_lockstep("resnet50", 128, 120, 6, 1000, flags="--parallel pp --places 2 --chunks 8 --schedule zero-bubble", ranks=(1,)),
    "vgg19-224": of_lockstep("vgg19", 224, 16, 6, classes=20),
    "swin": Work(swin, 16, 30),
    "mixer": Work(lambda: nets().of_timm("mixer_s16_224", img_size=64), 16, 18),
    "gpt_10m-dropout": Work(lambda: gpt_10m(0.2), 8, 6, 65, "tokens", words=65, optimizer="adamw"),
    "gpt2": Work(lambda: gpt2(64, 4000, n_layer=4, n_head=4, n_embd=256), 16, 24, 4000, "tokens"),
    "llama": Work(llama, 16, 24, 4000, "tokens"),
    "bert": Work(bert, 16, 30),
}
WORKS = TWELVE | MORE
IN_JAX = ("mnist-small", "resnet18", "gpt_10m")  # nets_jax.py has them
CHECKED = 3  # steps, after which the weights are compared with PyTorch's
