#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/nn/models/around_net.h"
#include "lockstep/nn/models/model.h"
#include "lockstep/parallel/pipeline/layers.h"

namespace lockstep {

/// A net of which layers are computed again in backward (see checkpoint()); in evaluation, and
/// without gradients, the net itself. It has the net's tensors and modules under their names.
class RecomputedModel final : public nn::AroundNet<nn::MultiInputModule, nn::Model> {
 public:
  /// Takes the layers whose names match the pattern, all without one. Throws InvalidArgument for a
  /// net of one layer, which would save nothing, and where none matches; `name` is for both.
  RecomputedModel(nn::Model net, const std::string& name, const std::string& pattern = "");

 private:
  torch::Tensor forward_all(std::vector<torch::Tensor> inputs) override;
  std::shared_ptr<torch::nn::Module> around(nn::Model net) const override;

  std::string net_name_, pattern_;
  Layers layers_;
};

/// Returns whether the name of a layer matches the pattern of those that are computed again.
bool is_computed_again(const std::string& layer, const std::string& pattern);

}  // namespace lockstep
