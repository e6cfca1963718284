#include "lockstep/parallel/pipeline/checkpoint.h"

#include <utility>

#include <torch/csrc/autograd/grad_mode.h>

#include "lockstep/core/error.h"

namespace lockstep {

Unchanged::Unchanged(std::vector<torch::Tensor> tensors) : tensors_(std::move(tensors)) {
  for (const torch::Tensor& tensor : tensors_) versions_.push_back(tensor._version());
}

void Unchanged::verify() const {
  for (std::size_t index = 0; index < tensors_.size(); ++index) {
    if (tensors_[index]._version() == versions_[index]) continue;
    throw Error(concat(
        "pipeline: input ", index, " of a checkpointed stage, ", tensors_[index].sizes(),
        ", was changed in place; its activations cannot be computed again. Let the stage's first "
        "layer work out of place, or set checkpoint to never"));
  }
}

BatchCounters::BatchCounters(std::vector<torch::Tensor> counters) : counters_(std::move(counters)) {
  save();
}

void BatchCounters::save() {
  saved_.clear();
  for (const torch::Tensor& counter : counters_) saved_.push_back(counter.clone());
}

void BatchCounters::restore() const {
  const torch::NoGradGuard no_grad;
  for (std::size_t index = 0; index < counters_.size(); ++index)
    counters_[index].copy_(saved_[index]);
}

}  // namespace lockstep
