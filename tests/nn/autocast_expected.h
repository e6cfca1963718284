#pragma once

// Made by tests/conformance/autocast.py with torch 2.15.0+cu132; do not edit.

namespace lockstep::testing {

/// The types of an operation's result under autocast.
struct AutocastTypes {
  const char* operation;
  const char *half_of_float, *half_of_half;  ///< float16, of inputs in float32 and in float16
  const char *bfloat16_of_float, *bfloat16_of_bfloat16;
};

inline constexpr AutocastTypes kAutocastTypes[] = {
    {"mm", "float16", "float16", "bfloat16", "bfloat16"},
    {"matmul", "float16", "float16", "bfloat16", "bfloat16"},
    {"addmm", "float16", "float16", "bfloat16", "bfloat16"},
    {"bmm", "float16", "float16", "bfloat16", "bfloat16"},
    {"baddbmm", "float16", "float16", "bfloat16", "bfloat16"},
    {"linear", "float16", "float16", "bfloat16", "bfloat16"},
    {"conv1d", "float16", "float16", "bfloat16", "bfloat16"},
    {"conv2d", "float16", "float16", "bfloat16", "bfloat16"},
    {"conv3d", "float16", "float16", "bfloat16", "bfloat16"},
    {"conv_transpose2d", "float16", "float16", "bfloat16", "bfloat16"},
    {"scaled_dot_product_attention", "float16", "float16", "bfloat16", "bfloat16"},
    {"prelu", "float16", "float16", "bfloat16", "bfloat16"},
    {"softmax", "float32", "float16", "float32", "bfloat16"},
    {"log_softmax", "float32", "float16", "float32", "bfloat16"},
    {"mse_loss", "float32", "float32", "float32", "float32"},
    {"l1_loss", "float32", "float32", "float32", "float32"},
    {"smooth_l1_loss", "float32", "float32", "float32", "float32"},
    {"huber_loss", "float32", "float32", "float32", "float32"},
    {"cross_entropy_loss", "float32", "float32", "float32", "float32"},
    {"nll_loss", "float32", "float32", "float32", "float32"},
    {"binary_cross_entropy", "float32", "float32", "float32", "float32"},
    {"binary_cross_entropy_with_logits", "float32", "float32", "float32", "float32"},
    {"kl_div", "float32", "float32", "float32", "float32"},
    {"layer_norm", "float32", "float16", "float32", "bfloat16"},
    {"group_norm", "float32", "float16", "float32", "bfloat16"},
    {"batch_norm", "float32", "float16", "float32", "bfloat16"},
    {"relu", "float32", "float16", "float32", "bfloat16"},
    {"gelu", "float32", "float16", "float32", "bfloat16"},
    {"sigmoid", "float32", "float16", "float32", "bfloat16"},
    {"exp", "float32", "float16", "float32", "bfloat16"},
    {"pow", "float32", "float16", "float32", "bfloat16"},
    {"add", "float32", "float16", "float32", "bfloat16"},
    {"mul", "float32", "float16", "float32", "bfloat16"},
    {"sum", "float32", "float16", "float32", "bfloat16"},
    {"mean", "float32", "float16", "float32", "bfloat16"},
    {"prod", "float32", "float32", "float32", "float32"},
    {"cdist", "float32", "float32", "float32", "float32"},
    {"max_pool2d", "float32", "float16", "float32", "bfloat16"},
    {"avg_pool2d", "float32", "float16", "float32", "bfloat16"},
    {"adaptive_avg_pool2d", "float32", "float16", "float32", "bfloat16"},
    {"upsample_bilinear2d", "float32", "float16", "float32", "bfloat16"},
    {"mixed add", "float32", "float32", "float32", "float32"},
    {"mixed cat", "float32", "float32", "float32", "float32"},
    {"mixed stack", "float32", "float32", "float32", "float32"},
    {"mixed mm", "float16", "float16", "bfloat16", "bfloat16"},
    {"mixed mse_loss", "float32", "float32", "float32", "float32"},
};

}  // namespace lockstep::testing
