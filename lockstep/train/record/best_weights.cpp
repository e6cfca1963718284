#include "lockstep/train/record/best_weights.h"

#include <system_error>

#include "lockstep/core/error.h"
#include "lockstep/nn/weights.h"

namespace lockstep {
namespace {

// Training goes on and changes the tensors.
nn::NamedTensors copy_of(const nn::NamedTensors& weights) {
  nn::NamedTensors copies("Tensor");
  for (const auto& item : weights)
    copies.insert(item.key(), item.value().detach().to(torch::kCPU, /*non_blocking=*/false, true));
  return copies;
}

}  // namespace

std::string BestWeights::save(const nn::NamedTensors& weights, const Metadata& metadata) {
  kept_.reset();  // is the best no more
  try {
    nn::save_weights(weights, file_, metadata);
    return "";
  } catch (const std::system_error& error) {
    kept_ = Kept{.weights = copy_of(weights), .metadata = metadata};
    return concat(
        error.what(), "; training continues, and the weights of the best epoch wait in memory");
  }
}

void BestWeights::finish() {
  if (!kept_) return;
  nn::save_weights(kept_->weights, file_, kept_->metadata);
  kept_.reset();
}

}  // namespace lockstep
