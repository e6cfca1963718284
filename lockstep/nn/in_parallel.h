#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include "lockstep/nn/kernel_types.h"

namespace lockstep::nn {

/// Calls body with ranges that together are [0, count), on LibTorch's threads: as
/// many as at::get_num_threads(), on this one alone inside of another parallel loop. What body
/// throws is thrown here.
///
/// at::parallel_for does so only in sources that are compiled with OpenMP, and by that compiler's
/// OpenMP: elsewhere it silently runs on one thread.
void in_parallel(std::int64_t count, c10::function_ref<void(Range range)> body);

/// Returns whether kernels can read a tensor's memory: on the CPU, its values as they are, without
/// tangents of forward mode.
bool is_readable(const at::Tensor& tensor);

}  // namespace lockstep::nn
