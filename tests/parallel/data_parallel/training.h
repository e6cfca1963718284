#pragma once

// What the tests of DataParallel share: a module and its twin that is trained serially.

#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/mse_loss.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

namespace lockstep::testing_data_parallel {

/// A module that is a function, and so are its clones.
template <typename Result, typename... Inputs>
class ComputingImpl : public torch::nn::Cloneable<ComputingImpl<Result, Inputs...>> {
 public:
  explicit ComputingImpl(Result (*function)(Inputs...)) : function_(function) {}
  void reset() override {}
  Result forward(Inputs... inputs) { return function_(inputs...); }

 private:
  Result (*function_)(Inputs...);
};

///     DataParallel model(computing(+[](const Tensor& input) { return input.sum(); }), places);
template <typename Result, typename... Inputs>
auto computing(Result (*function)(Inputs...)) {
  return std::make_shared<ComputingImpl<Result, Inputs...>>(function);
}

/// Returns another module with equal values.
template <typename Module>
std::shared_ptr<Module> twin(const std::shared_ptr<Module>& module) {
  return std::dynamic_pointer_cast<Module>(module->clone());
}

template <typename Module>
std::shared_ptr<Module> twin(const torch::nn::ModuleHolder<Module>& module) {
  return twin(module.ptr());
}

inline void expect_close(
    const torch::Tensor& actual, const torch::Tensor& expected, const std::string& what) {
  ASSERT_EQ(actual.defined(), expected.defined()) << what;
  if (!actual.defined()) return;
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  const double tolerance = actual.scalar_type() == torch::kDouble ? 1e-10 : 1e-5;
  const auto on_host = [](const torch::Tensor& tensor) { return tensor.to_dense().cpu(); };
  EXPECT_TRUE(on_host(actual).allclose(on_host(expected), tolerance, tolerance))
      << what << " differs by " << (on_host(actual) - on_host(expected)).abs().max().item<double>();
}

/// Compares parameters, gradients and buffers by name.
inline void expect_same_state(const torch::nn::Module& actual, const torch::nn::Module& expected) {
  const auto parameters = expected.named_parameters();
  for (const auto& item : actual.named_parameters()) {
    expect_close(item.value(), parameters[item.key()], item.key());
    expect_close(item.value().grad(), parameters[item.key()].grad(), item.key() + ".grad");
  }
  const auto buffers = expected.named_buffers();
  for (const auto& item : actual.named_buffers()) {
    expect_close(item.value(), buffers[item.key()], item.key());
  }
}

/// Makes steps of SGD with momentum and a mean loss; returns the losses.
template <typename Forward>
std::vector<double> train(torch::nn::Module& module, Forward&& forward, const torch::Tensor& inputs,
    const torch::Tensor& targets, int steps, double rate) {
  torch::optim::SGD optimizer(module.parameters(), torch::optim::SGDOptions(rate).momentum(0.9));
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    auto loss = at::mse_loss(forward(inputs), targets);
    loss.backward();
    optimizer.step();
    losses.push_back(loss.template item<double>());
  }
  return losses;
}

}  // namespace lockstep::testing_data_parallel
