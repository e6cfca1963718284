#include "lockstep/nn/models/toy.h"

#include "lockstep/core/error.h"

namespace lockstep::nn {

ToyImpl::ToyImpl(std::int64_t classes)
    : net1_(register_module("net1", torch::nn::Linear(10, 10))),
      net2_(register_module("net2", torch::nn::Linear(10, classes))) {}

torch::Tensor ToyImpl::forward(torch::Tensor features) {
  check(features.dim() >= 2, "toy: takes [N, 10], not ", features.sizes());
  const auto rows = features.flatten(1);
  check(rows.size(1) == 10, "toy: takes [N, 10], not ", features.sizes());
  return net2_(net1_(rows).relu());
}

}  // namespace lockstep::nn
