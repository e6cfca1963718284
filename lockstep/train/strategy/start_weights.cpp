#include "lockstep/train/strategy/start_weights.h"

#include <torch/nn/modules/linear.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/weights.h"

namespace lockstep {
namespace {

// The layer that gives the scores.
std::string head_of(const torch::nn::Module& model) {
  std::string head;
  for (const auto& item : model.named_modules()) {
    if (item.value()->as<torch::nn::Linear>() != nullptr) head = item.key();
  }
  return head;
}

void load_pretrained(nn::Model& model, const std::string& path, StartWeights& start) {
  const std::string head = head_of(*model);
  const nn::WeightsReport report =
      nn::load_weights(*model, path, {.resizable = {head + ".weight", head + ".bias"}, .only = {}});
  start.remark = concat(report.loaded, " tensors from ", path);
  const std::string remarks = remarks_text(report);
  if (remarks.empty()) return;
  start.warning = concat("weights of ", path, ":\n", remarks);
  start.warning.pop_back();  // the last line's end
}

}  // namespace

StartWeights start_with(nn::Model& model, const TrainOptions& options) {
  StartWeights start;
  if (!options.pretrained.empty()) load_pretrained(model, options.pretrained, start);
  if (options.freeze.empty()) return start;
  start.frozen = freeze(*model, options.freeze);
  start.remark += concat(
      start.remark.empty() ? "" : "; ", "frozen: ", start.frozen.parameters, " of ",
      model->parameters().size(), " parameters (", start.frozen.elements,
      " numbers) and the statistics of ", start.frozen.norms.size(), " batch norms");
  return start;
}

}  // namespace lockstep
