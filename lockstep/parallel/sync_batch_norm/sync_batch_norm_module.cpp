#include "lockstep/parallel/sync_batch_norm/sync_batch_norm_module.h"

#include <ATen/ops/batch_norm.h>

#include "lockstep/core/error.h"
#include "lockstep/parallel/sync_batch_norm/sync_batch_norm.h"

namespace lockstep {

torch::Tensor SyncBatchNormImpl::forward(const torch::Tensor& input) {
  _check_input_dim(input);
  if (is_training()) {
    const double momentum = next_momentum();
    return sync_batch_norm(
        input, weight, bias, running_mean, running_var, momentum, options.eps(), group_);
  }
  const bool by_batch = !running_mean.defined();
  return at::batch_norm(
      input, weight, bias, running_mean, running_var, by_batch, 0, options.eps(), true);
}

/// Counts the batch and returns the weight of its statistics; without a momentum all batches count
/// alike.
double SyncBatchNormImpl::next_momentum() {
  if (num_batches_tracked.defined()) num_batches_tracked += 1;
  if (options.momentum()) return *options.momentum();
  return num_batches_tracked.defined() ? 1.0 / num_batches_tracked.item<double>() : 0;
}

void SyncBatchNormImpl::_check_input_dim(const torch::Tensor& input) {
  check(input.dim() >= 2 && input.size(1) == options.num_features(),
      "SyncBatchNorm: expected an input [N, ", options.num_features(), ", ...], got ",
      input.sizes());
}

void SyncBatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << "lockstep::SyncBatchNorm(" << options.num_features() << ", eps=" << options.eps()
         << ", ranks=" << group_.size() << ")";
}

}  // namespace lockstep
