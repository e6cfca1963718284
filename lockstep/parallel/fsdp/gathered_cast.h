#pragma once

#include <c10/core/Storage.h>
#include <torch/nn/module.h>
#include <torch/types.h>

namespace lockstep {

/// Parameters that are gathered in a shorter type.
///
/// Note [Gathers in a shorter type]
/// Under autocast linear layers and convolutions read their parameters only to cast them. So a rank
/// casts its part, and what is gathered is the result: half the bytes to send, and to hold until
/// backward. The parameters' own storage has no memory then. A rule for the operator that casts
/// (Note [Operator rules]) gives a view of what was gathered instead, in the parameter's sizes and
/// strides; its backward is that of a cast. So all that is computed has the bits that it has under
/// autocast elsewhere, and whatever else reads the parameter throws.
struct GatheredCast {
  torch::Storage storage = {};
  torch::TensorOptions options = {};
};

/// Lets casts of tensors in a storage be views of what was gathered, until the storage gets memory
/// of its own. The cast must live as long.
void stand_in(const torch::Storage& storage, GatheredCast& cast);

/// Returns whether autocast casts all parameters of a module's own, as far as we know: those of
/// LibTorch's Linear and Conv1d to Conv3d.
bool autocast_casts(const torch::nn::Module& module);

}  // namespace lockstep
