#pragma once

#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/nn/named_state.h"

namespace lockstep {

/// The treatment of saved tensors whose names this rank does not know.
enum class Others {
  kRefused,  ///< they are an error
  kSkipped,  ///< they belong to stages that other ranks hold
};

/// Copies saved tensors into those of the same names: same types, same shapes, any memory format.
///
/// What is missing, unexpected or of another type or shape is a DataError that begins with `what`
/// and lists the first ten; nothing was changed then.
void restore_tensors(const nn::NamedTensors& target, const nn::NamedTensors& saved,
    const std::string& what, Others others = Others::kRefused);

/// Returns `float32 (2, 3)`.
std::string type_and_shape(const torch::Tensor& tensor);

/// Returns the state of this process's default generators as bytes (uint8): `generator/cpu`, and of
/// each listed CUDA device `generator/cuda:0`. Ranks that are threads share the generators.
nn::NamedTensors random_state(const std::vector<torch::Device>& devices = {});

/// Sets the default generators of the CPU and of the listed devices; other entries are left alone.
///
/// Returns the devices for which nothing was saved; their generators stay as they are. A state that
/// this LibTorch's generators do not take is a DataError.
std::vector<torch::Device> restore_random_state(
    const nn::NamedTensors& state, const std::vector<torch::Device>& devices = {});

}  // namespace lockstep
