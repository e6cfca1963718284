#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include "lockstep/nn/kernel_types.h"

namespace lockstep::nn::fused {

/// Returns whether kernels can read a tensor's values: fp32 or bf16.
bool has_stored_type(const at::Tensor& values);

/// Returns the type of such values.
Element stored_element(const at::Tensor& values);

/// Returns `count` sums over rows, float [count]. Body adds those of a part of the rows to zeros;
/// the parts, whose sums are added in order, do not depend on the threads, so these change no bit.
at::Tensor sums_over_rows(
    std::int64_t rows, std::int64_t count, c10::function_ref<void(Range rows, float* sums)> body);

}  // namespace lockstep::nn::fused
