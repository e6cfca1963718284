"""Trains a net of works.py in JAX and prints the seconds of a step, or whether it computes what PyTorch does.

    python nets_jax.py --net resnet18 --data FOLDER --check
    python nets_jax.py --net resnet18 --data FOLDER --devices 1 --xla xla_cpu_enable_fast_math=true

FOLDER is one of `nets.py --make`. --check computes in fp64: from the same weights and batches the first loss must be PyTorch's, and some steps must
change the weights and statistics as PyTorch's do; it prints the relative differences.

A step is one jitted function with donated buffers, compiled before it is timed. Each of two devices computes half of a batch; batch norm is over
all of it. Images are NHWC. In bf16 convolutions and products take and return bf16, as in PyTorch's autocast; weights stay in fp32. Needs jax and
safetensors.
"""

import argparse
import json
import os
import time
from functools import partial, reduce
from pathlib import Path

from works import CHECKED, IN_JAX, WORKS

LARGEST_DIFFERENCE = 1e-6  # the softmax of JAX's attention is in fp32


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", choices=IN_JAX, required=True)
    parser.add_argument("--data", metavar="FOLDER", required=True)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--lines", type=int, default=6, help="so many times are taken")
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--xla", metavar="FLAG", default="", help="a flag of XLA's compiler, without the hyphens")
    parser.add_argument("--precision", choices=["32", "bf16-mixed"], default="32")
    return parser.parse_args()


arguments = parse_arguments()
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *([f"--{arguments.xla}"] if arguments.xla else [])])

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from safetensors.numpy import load_file

WORK = WORKS[arguments.net]
MOMENTUM_OF_STATISTICS, EPSILON_OF_NORMS = 0.1, 1e-5
RATE, EPSILON, BETAS = 1e-3, 1e-8, (0.9, 0.999)  # of Adam
TYPES = {"32": jnp.float32, "bf16-mixed": jnp.bfloat16}
DECAY = {"adam": 0.0, "adamw": 0.01}[WORK.optimizer]


class Layers:
    """PyTorch's layers by their names, of weights as torch_weights() gives them; `statistics` gathers those of batch norms."""

    def __init__(self, weights, statistics, dtype):
        self.weights, self.statistics, self.dtype = weights, dict(statistics), dtype
        self.wide = jnp.promote_types(dtype, jnp.float32)  # of norms and of the loss

    def convolution(self, name, x, stride=1, padding=0):
        kernel = self.weights[f"{name}.weight"].astype(self.dtype)
        return lax.conv_general_dilated(x.astype(self.dtype), kernel, (stride, stride), [(padding, padding)] * 2,
                                        dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def linear(self, name, x):
        return x.astype(self.dtype) @ self.weights[f"{name}.weight"].astype(self.dtype) + self.bias(name)

    def bias(self, name):
        return self.weights[f"{name}.bias"].astype(self.dtype)

    def batch_norm(self, name, x):
        values = x.astype(self.wide)
        mean, variance = values.mean((0, 1, 2)), values.var((0, 1, 2))
        count = values.size // values.shape[-1]
        for kind, new in {"mean": mean, "var": variance * count / (count - 1)}.items():
            key = f"{name}.running_{kind}"
            self.statistics[key] += MOMENTUM_OF_STATISTICS * (lax.stop_gradient(new) - self.statistics[key])
        return self.scaled(name, (values - mean) * lax.rsqrt(variance + EPSILON_OF_NORMS)).astype(self.dtype)

    def layer_norm(self, name, x):
        x = x.astype(self.wide)
        centered = x - x.mean(-1, keepdims=True)
        return self.scaled(name, centered * lax.rsqrt((centered**2).mean(-1, keepdims=True) + EPSILON_OF_NORMS))

    def scaled(self, name, x):
        return x * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]


def mnist_small(layers, x):
    x = jax.nn.relu(layers.convolution("0", x, padding=1) + layers.bias("0"))
    images, height, width, channels = x.shape
    x = x.reshape(images, height // 2, 2, width // 2, 2, channels).max((2, 4))
    return layers.linear("6", jax.nn.relu(layers.linear("4", x.reshape(images, -1))))


def max_pool_3x3(x):
    """Stride 2, padding 1; the gradient of lax.reduce_window takes longer."""
    images, height, width, channels = x.shape
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-jnp.inf)
    parts = [lax.slice(padded, (0, row, column, 0), (images, row + height - 1, column + width - 1, channels), (1, 2, 2, 1))
             for row in range(3) for column in range(3)]
    return reduce(jnp.maximum, parts)


def resnet18(layers, x):
    x = max_pool_3x3(jax.nn.relu(layers.batch_norm("bn1", layers.convolution("conv1", x, 2, 3))))
    for stage in range(1, 5):
        for block in range(2):
            name, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            y = jax.nn.relu(layers.batch_norm(f"{name}.bn1", layers.convolution(f"{name}.conv1", x, stride, 1)))
            y = layers.batch_norm(f"{name}.bn2", layers.convolution(f"{name}.conv2", y, 1, 1))
            if stride == 2:
                x = layers.batch_norm(f"{name}.downsample.1", layers.convolution(f"{name}.downsample.0", x, 2))
            x = jax.nn.relu(x + y)
    return layers.linear("fc", x.mean((1, 2)))


def gpt_10m(layers, words, blocks=6, heads=6):
    root = "model.transformer"
    embedding = layers.weights[f"{root}.wte.weight"]
    x = embedding[words] + layers.weights[f"{root}.wpe.weight"][: words.shape[1]]
    for block in range(blocks):
        name = f"{root}.h.{block}"
        y = layers.linear(f"{name}.attn.c_attn", layers.layer_norm(f"{name}.ln_1", x))
        queries, keys, values = (part.reshape(*part.shape[:2], heads, -1) for part in jnp.split(y, 3, axis=-1))
        y = jax.nn.dot_product_attention(queries, keys, values, is_causal=True).reshape(x.shape)
        x = x + layers.linear(f"{name}.attn.c_proj", y)
        y = layers.linear(f"{name}.mlp.c_fc", layers.layer_norm(f"{name}.ln_2", x))
        x = x + layers.linear(f"{name}.mlp.c_proj", jax.nn.gelu(y, approximate=True))
    return layers.layer_norm(f"{root}.ln_f", x).astype(layers.dtype) @ embedding.T.astype(layers.dtype)


NET = {"mnist-small": mnist_small, "resnet18": resnet18, "gpt_10m": gpt_10m}[arguments.net]


def torch_weights(tensors):
    """Returns PyTorch's weights as the layers take them: kernels HWIO, matrices [inputs, outputs]."""
    weights = {}
    for name, value in tensors.items():
        if value.ndim == 4:
            value = value.transpose(2, 3, 1, 0)
        elif arguments.net == "mnist-small" and name == "4.weight":  # of flattened CHW
            value = value.reshape(-1, 32, 14, 14).transpose(2, 3, 1, 0).reshape(-1, value.shape[0])
        elif value.ndim == 2 and arguments.net != "gpt_10m":  # whose linear layers are [inputs, outputs] in transformers too
            value = value.T
        weights[name] = value
    return weights


def read_folder():
    """Returns the weights and the statistics of batch norms, the same after PyTorch's steps, PyTorch's first loss, and the batches."""
    tensors, data = load_file(Path(arguments.data) / "start.safetensors"), load_file(Path(arguments.data) / "train.safetensors")
    parts = []
    for when in ("before.", "after."):
        these = {name.removeprefix(when): value for name, value in tensors.items() if name.startswith(when)}
        statistics = {name: value for name, value in these.items() if ".running_" in name}
        others = ("num_batches_tracked", "lm_head.weight")  # a count, and the embedding once more
        weights = {name: value for name, value in these.items() if name not in statistics and not name.endswith(others)}
        parts.append((torch_weights(weights), statistics))
    x = data["x"].transpose(0, 2, 3, 1) if data["x"].ndim == 4 else data["x"].astype("int32")
    target = data["target"].astype("int32")
    batches = [(x[first : first + WORK.batch], target[first : first + WORK.batch]) for first in range(0, len(x), WORK.batch)]
    return *parts, float(tensors["loss"]), batches


def loss_of(weights, statistics, x, target, dtype):
    layers = Layers(weights, statistics, dtype)
    chances = jax.nn.log_softmax(NET(layers, x).astype(layers.wide))
    return -jnp.take_along_axis(chances, target[..., None], -1).mean(), layers.statistics


def adam(count, weight, gradient, first, second):
    first = BETAS[0] * first + (1 - BETAS[0]) * gradient
    second = BETAS[1] * second + (1 - BETAS[1]) * gradient**2
    size = jnp.sqrt(second / (1 - BETAS[1] ** count)) + EPSILON
    return weight * (1 - RATE * DECAY) - RATE / (1 - BETAS[0] ** count) * first / size, first, second


def train_step(state, x, target, dtype):
    """Returns the state after the step and the loss before it."""
    count, weights, first, second, statistics = state
    (loss, statistics), gradients = jax.value_and_grad(loss_of, has_aux=True)(weights, statistics, x, target, dtype)
    new = {name: adam(count, weights[name], gradients[name], first[name], second[name]) for name in weights}
    return (count + 1, *({name: parts[i] for name, parts in new.items()} for i in range(3)), statistics), loss


class Training:
    """The compiled step of a type, and where its tensors lie."""

    def __init__(self, dtype, weights, statistics, batches):
        mesh = Mesh(jax.devices(), ("batch",))
        self.whole, divided = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("batch"))
        self.wide = jnp.promote_types(dtype, jnp.float32)
        self.weights, self.statistics = jax.tree.map(self.as_wide, (weights, statistics))
        self.batches = [jax.device_put((self.as_wide(x), target), divided) for x, target in batches]
        step = jax.jit(partial(train_step, dtype=dtype), donate_argnums=0, out_shardings=self.whole)
        self.step = step.lower(self.start(), *self.batches[0]).compile()

    def as_wide(self, values):
        return values if values.dtype == "int32" else values.astype(self.wide)

    def start(self):
        zeros = [{name: jnp.zeros_like(value) for name, value in self.weights.items()} for _ in range(2)]
        return jax.device_put((self.wide.type(1), self.weights, *zeros, self.statistics), self.whole)

    def after(self, steps):
        """Returns the loss before the first of the steps, and the weights and statistics behind them."""
        state, losses = self.start(), []
        for step in range(steps):
            state, loss = self.step(state, *self.batches[step])
            losses.append(float(loss))
        return losses[0], (state[1], state[4])

    def seconds(self):
        state, seconds, step = self.start(), [], 0
        steps_of_line = arguments.steps // arguments.lines
        for _ in range(arguments.lines):
            start = time.perf_counter()
            for _ in range(steps_of_line):
                state, loss = self.step(state, *self.batches[step % len(self.batches)])
                step += 1
            jax.block_until_ready((state, loss))
            seconds.append((time.perf_counter() - start) / steps_of_line)
        return seconds


def change_between(before, after):
    return sum(float(abs(after[name] - before[name]).sum()) for name in before)


def check(before, after, their_loss, batches):
    """Prints the differences of the loss, and of what the steps do to the weights and to the statistics; ends the program if they are large."""
    loss, found = Training(jnp.float64, *before, batches).after(CHECKED)
    changes = [change_between(other, own) / change_between(first, other) for first, other, own in zip(before, after, found) if first]
    differences = [abs(loss / their_loss - 1), *changes]
    if not max(differences) < LARGEST_DIFFERENCE:
        raise SystemExit(f"{arguments.net} in JAX is not PyTorch's: the loss and what steps change differ by {differences}")
    print(json.dumps({"differences": differences}))


def main():
    jax.config.update("jax_num_cpu_devices", arguments.devices)
    jax.config.update("jax_enable_x64", arguments.check)
    before, after, loss, batches = read_folder()
    if arguments.check:
        check(before, after, loss, batches)
    else:
        print(json.dumps({"seconds": Training(TYPES[arguments.precision], *before, batches).seconds()}))


if __name__ == "__main__":
    main()
