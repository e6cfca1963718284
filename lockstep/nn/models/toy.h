#pragma once

#include <cstdint>
#include <tuple>

#include "lockstep/nn/models/clone.h"
#include "lockstep/nn/models/model.h"

namespace lockstep::nn {

/// Is the net of PyTorch's DDP tutorial: linear 10-10, ReLU, linear 10-classes (5 there).
///
/// Takes [N, 10] or anything that flattens to it. Its layers: input, net1, relu, net2.
class ToyImpl final : public CloneByArguments<ToyImpl, ModelImpl> {
 public:
  explicit ToyImpl(std::int64_t classes);
  std::tuple<std::int64_t> arguments() const { return {classes_}; }

 private:
  std::int64_t classes_;
};

}  // namespace lockstep::nn
