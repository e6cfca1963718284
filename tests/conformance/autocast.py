#!/usr/bin/env python3
"""Makes tests/nn/autocast_expected.h with Python PyTorch: autocast.py | clang-format > ../nn/autocast_expected.h.

One row an operation: the type of its result under torch.autocast("cpu"), for inputs of float32 and for inputs in the
shorter type, with float16 and with bfloat16. `mixed` operations take one input of each. C++ calls the same operations by
the same names in tests/nn/autocast_test.cpp.
"""

import torch
import torch.nn.functional as F

LABELS = torch.tensor([0, 1])

# x: [2, 4], z: the same values in float32; images: x as [2, 1, 2, 2]; all positive and below 1.
OPERATIONS = {
    "mm": lambda x, z: torch.mm(x, x.t()),
    "matmul": lambda x, z: torch.matmul(x, x.t()),
    "addmm": lambda x, z: torch.addmm(x[:, :2], x, x.t()),
    "bmm": lambda x, z: torch.bmm(x.view(2, 2, 2), x.view(2, 2, 2)),
    "baddbmm": lambda x, z: torch.baddbmm(x.view(2, 2, 2), x.view(2, 2, 2), x.view(2, 2, 2)),
    "linear": lambda x, z: F.linear(x, x),
    "conv1d": lambda x, z: F.conv1d(x.view(2, 1, 4), x.view(2, 1, 4)),
    "conv2d": lambda x, z: F.conv2d(x.view(2, 1, 2, 2), x.view(2, 1, 2, 2)),
    "conv3d": lambda x, z: F.conv3d(x.view(2, 1, 1, 2, 2), x.view(2, 1, 1, 2, 2)),
    "conv_transpose2d": lambda x, z: F.conv_transpose2d(x.view(2, 1, 2, 2), x.view(1, 2, 2, 2)),
    "scaled_dot_product_attention": lambda x, z: F.scaled_dot_product_attention(
        x.view(1, 1, 2, 4), x.view(1, 1, 2, 4), x.view(1, 1, 2, 4)
    ),
    "prelu": lambda x, z: F.prelu(x, x[0, :1]),
    "softmax": lambda x, z: torch.softmax(x, 1),
    "log_softmax": lambda x, z: torch.log_softmax(x, 1),
    "mse_loss": lambda x, z: F.mse_loss(x, x),
    "l1_loss": lambda x, z: F.l1_loss(x, x),
    "smooth_l1_loss": lambda x, z: F.smooth_l1_loss(x, x),
    "huber_loss": lambda x, z: F.huber_loss(x, x),
    "cross_entropy_loss": lambda x, z: F.cross_entropy(x, LABELS),
    "nll_loss": lambda x, z: F.nll_loss(x, LABELS),
    "binary_cross_entropy": lambda x, z: F.binary_cross_entropy(x, x),
    "binary_cross_entropy_with_logits": lambda x, z: F.binary_cross_entropy_with_logits(x, x),
    "kl_div": lambda x, z: F.kl_div(x, x, reduction="sum"),
    "layer_norm": lambda x, z: F.layer_norm(x, (4,)),
    "group_norm": lambda x, z: F.group_norm(x.view(2, 1, 2, 2), 1),
    "batch_norm": lambda x, z: F.batch_norm(x, torch.zeros(4), torch.ones(4), training=True),
    "relu": lambda x, z: torch.relu(x),
    "gelu": lambda x, z: F.gelu(x),
    "sigmoid": lambda x, z: torch.sigmoid(x),
    "exp": lambda x, z: torch.exp(x),
    "pow": lambda x, z: torch.pow(x, 2),
    "add": lambda x, z: x + x,
    "mul": lambda x, z: x * x,
    "sum": lambda x, z: x.sum(),
    "mean": lambda x, z: x.mean(),
    "prod": lambda x, z: x.prod(),
    "cdist": lambda x, z: torch.cdist(x, x),
    "max_pool2d": lambda x, z: F.max_pool2d(x.view(2, 1, 2, 2), 2),
    "avg_pool2d": lambda x, z: F.avg_pool2d(x.view(2, 1, 2, 2), 2),
    "adaptive_avg_pool2d": lambda x, z: F.adaptive_avg_pool2d(x.view(2, 1, 2, 2), 1),
    "upsample_bilinear2d": lambda x, z: F.interpolate(x.view(2, 1, 2, 2), size=(4, 4), mode="bilinear"),
    "mixed add": lambda x, z: x + z,
    "mixed cat": lambda x, z: torch.cat([x, z]),
    "mixed stack": lambda x, z: torch.stack([x, z]),
    "mixed mm": lambda x, z: torch.mm(x, z.t()),
    "mixed mse_loss": lambda x, z: F.mse_loss(x, z),
}


def result(operation, shorter, inputs):
    z = (torch.arange(8, dtype=torch.float32) + 1).view(2, 4) / 16
    with torch.autocast("cpu", dtype=shorter):
        return str(operation(z.to(inputs), z).dtype).removeprefix("torch.")


def main():
    print(f"#pragma once\n\n// Made by tests/conformance/autocast.py with torch {torch.__version__}; do not edit.\n")
    print("namespace lockstep::testing {\n")
    print("/// Are the types of an operation's result under autocast.\nstruct AutocastTypes {\n  const char* operation;")
    print("  const char *half_of_float, *half_of_half;  ///< float16, of inputs in float32 and in float16")
    print("  const char *bfloat16_of_float, *bfloat16_of_bfloat16;\n};\n")
    print("inline constexpr AutocastTypes kAutocastTypes[] = {")
    for name, operation in OPERATIONS.items():
        types = [
            result(operation, shorter, inputs)
            for shorter in (torch.float16, torch.bfloat16)
            for inputs in (torch.float32, shorter)
        ]
        print("    {" + ", ".join(f'"{text}"' for text in (name, *types)) + "},")
    print("};\n\n}  // namespace lockstep::testing")


if __name__ == "__main__":
    main()
