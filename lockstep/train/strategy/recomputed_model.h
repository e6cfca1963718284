#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/nn/models/around_net.h"
#include "lockstep/nn/models/model.h"
#include "lockstep/parallel/pipeline/layers.h"

namespace lockstep {

/// A net whose layers are computed again in backward (see checkpoint()); in evaluation, and without
/// gradients, the net itself. It has the net's tensors and modules under their names.
class RecomputedModel final : public nn::AroundNet<nn::MultiInputModule, nn::Model> {
 public:
  /// Throws InvalidArgument for a net of one layer, which would save nothing; `name` is for it.
  RecomputedModel(nn::Model net, const std::string& name);

 private:
  torch::Tensor forward_all(std::vector<torch::Tensor> inputs) override;
  std::shared_ptr<torch::nn::Module> around(nn::Model net) const override;

  std::string net_name_;
  Layers layers_;
};

}  // namespace lockstep
