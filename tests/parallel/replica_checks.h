#pragma once

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/comm/group_factory.h"
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/parallel/distributed_data_parallel.h"

namespace lockstep::testing {

inline torch::Tensor constant(const std::vector<std::int64_t>& shape, double value) {
  return torch::full(shape, value, torch::kFloat);
}

/// Expects the same bits on every rank.
inline void expect_same_on_all_ranks(const torch::Tensor& tensor, const ProcessGroup& group) {
  std::vector<std::int64_t> shape = tensor.sizes().vec();
  shape.insert(shape.begin(), group.size());
  const torch::Tensor all = torch::empty(shape, tensor.options());
  group.all_gather(all, tensor.detach()).wait();
  for (int rank = 1; rank < group.size(); ++rank) EXPECT_TRUE(torch::equal(all[rank], all[0]));
}

/// Expects the same gradients on every rank; all must be there.
inline void expect_same_gradients(const torch::nn::Module& net, const ProcessGroup& group) {
  for (const auto& parameter : net.parameters()) expect_same_on_all_ranks(parameter.grad(), group);
}

inline torch::nn::Linear scalar_layer() {
  return torch::nn::Linear(torch::nn::LinearOptions(1, 1).bias(false));
}

/// Puts each parameter in a separate bucket, so that the order of launching shows.
inline DistributedDataParallelOptions one_each() {
  return DistributedDataParallelOptions().first_bucket_bytes(1).bucket_bytes(1);
}

/// As one_each(), and a backward may leave parameters out.
inline DistributedDataParallelOptions with_unused() {
  return one_each().find_unused_parameters(true);
}

inline DistributedDataParallelOptions with_static_graph() { return one_each().static_graph(true); }

/// Runs the body with a net and its wrapper on every rank of a group.
///
///     with_replicas(2, make<Choosing>, one_each(), [](Choosing& net, auto& model, auto& group) {
///     ... });
template <typename Make, typename Body>
void with_replicas(int ranks, const Make& make_net, const DistributedDataParallelOptions& options,
    const Body& body) {
  run_ranks(ranks, [&](const ProcessGroup& group) {
    auto net = make_net();
    DistributedDataParallel model(net, group, options);
    body(net, model, group);
  });
}

template <typename Net>
Net make() {
  return Net();
}

/// Makes a pass whose gradients stay on this rank.
template <typename Model, typename... Inputs>
void local_pass(Model& model, const Inputs&... inputs) {
  const auto accumulate = model.no_sync();
  model(inputs...).sum().backward();
}

/// Returns what this rank reads when another, or itself, gives up for this reason.
inline std::string heard(const std::string& reason, int from, const ProcessGroup& group) {
  return group.rank() == from ? reason : as_heard(reason);
}

inline float gradient_of(const torch::nn::Linear& layer) {
  return layer->weight.grad().item<float>();
}

/// Three layers that multiply by 2; forward is up to derived classes.
struct ThreeLayersImpl : torch::nn::Module {
  ThreeLayersImpl() {
    first = register_module("first", scalar_layer());
    second = register_module("second", scalar_layer());
    third = register_module("third", scalar_layer());
    const torch::NoGradGuard no_grad;
    for (auto& parameter : parameters()) parameter.fill_(2);
  }
  torch::nn::Linear first{nullptr}, second{nullptr}, third{nullptr};
};

/// Uses one layer or two.
struct ChoosingImpl : ThreeLayersImpl {
  torch::Tensor forward(const torch::Tensor& input, bool deep) {
    return deep ? second(first(input)) : first(input);
  }
};
TORCH_MODULE(Choosing);

}  // namespace lockstep::testing
