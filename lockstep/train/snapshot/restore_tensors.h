#pragma once

#include <string>

#include "lockstep/nn/named_state.h"

namespace lockstep {

/// What becomes of saved tensors whose names this rank does not know.
enum class Others {
  kRefused,  ///< they are an error
  kSkipped,  ///< they belong to stages that other ranks hold
};

/// Copies saved tensors into those of the same names: same types, same shapes, any memory format.
///
/// What is missing, unexpected or of another type or shape is a DataError that begins with `what`
/// and lists all of it; nothing was changed then.
void restore_tensors(const nn::NamedTensors& target, const nn::NamedTensors& saved,
    const std::string& what, Others others = Others::kRefused);

/// Returns `float32 (2, 3)`.
std::string type_and_shape(const torch::Tensor& tensor);

}  // namespace lockstep
