#include "lockstep/train/record/best_weights.h"

#include <exception>
#include <system_error>

#include "lockstep/core/error.h"
#include "lockstep/formats/weights/safetensors.h"
#include "lockstep/nn/weights.h"
#include "lockstep/snapshot/restore_tensors.h"

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

bool BestWeights::holds(const Metadata& metadata) const {
  if (kept_) return kept_->metadata == metadata;
  try {
    return read_safetensors(file_).metadata() == metadata;
  } catch (const std::exception&) {
    return false;
  }
}

void BestWeights::load(const nn::NamedTensors& into, const Metadata& metadata) const {
  if (!holds(metadata))
    throw DataError(concat(file_.string(), " is missing, or not of the best epoch"));
  if (kept_) return restore_tensors(into, kept_->weights, "the best weights");
  nn::load_weights(into, file_);
}

void BestWeights::finish() {
  if (!kept_) return;
  nn::save_weights(kept_->weights, file_, kept_->metadata);
  kept_.reset();
}

}  // namespace lockstep
