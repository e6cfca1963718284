#include "lockstep/nn/models/toy.h"

#include <torch/nn/modules/linear.h>

#include "lockstep/core/error.h"

namespace lockstep::nn {
namespace {

torch::Tensor checked_rows(torch::Tensor features) {
  check(features.dim() >= 2, "toy: takes [N, 10], not ", features.sizes());
  auto rows = features.flatten(1);
  check(rows.size(1) == 10, "toy: takes [N, 10], not ", features.sizes());
  return rows;
}

}  // namespace

ToyImpl::ToyImpl(std::int64_t classes) : classes_(classes) {
  append("input", layer_of(checked_rows));
  append_module("net1", torch::nn::Linear(10, 10));
  append("relu", layer_of(relu_layer));
  append_module("net2", torch::nn::Linear(10, classes));
}

}  // namespace lockstep::nn
