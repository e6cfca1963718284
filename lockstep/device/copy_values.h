#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Whether a dense tensor's bytes in the host's memory are its values.
bool is_plain(const at::Tensor& tensor);

/// Copies the values of a tensor into another one of its sizes. Where both are small and lie alike
/// in the host's memory, it does without LibTorch's operators, which would take longer than the
/// copies of the many small tensors of a step; the other one then gets no new version.
void copy_values(const at::Tensor& from, const at::Tensor& to);

}  // namespace lockstep
