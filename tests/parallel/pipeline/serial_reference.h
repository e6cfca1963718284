#pragma once

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/support/places.h"
#include <ATen/ops/mse_loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include "lockstep/parallel/pipeline/layers.h"

namespace lockstep::testing {

inline torch::Tensor mean_loss(const torch::Tensor& output, const torch::Tensor& target) {
  return at::mse_loss(output, target);
}

inline torch::Tensor sum_loss(const torch::Tensor& output, const torch::Tensor& target) {
  return at::mse_loss(output, target, at::Reduction::Sum);
}

/// Returns deep copies of a net, for a second computation with the same parameters; on the calling
/// thread's device.
inline torch::nn::Sequential copy_of(const torch::nn::Sequential& net) {
  torch::nn::Sequential copy(std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone()));
  bring_here(*copy);
  return copy;
}

/// Returns the loss, computed where the output is.
inline torch::Tensor loss_there(const torch::Tensor& output, const torch::Tensor& target) {
  return at::mse_loss(output, target.to(output.device()));
}

/// Compares relative to the largest expected value, or to `least_scale` if all are smaller.
inline void expect_close(const torch::Tensor& actual, const torch::Tensor& expected,
    double tolerance, const std::string& what, double least_scale = 1e-3) {
  ASSERT_EQ(actual.defined(), expected.defined()) << what;
  if (!expected.defined()) return;
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  const torch::Tensor serial = expected.cpu();  // each stage may be on a device of its own
  const double scale = std::max(least_scale, serial.abs().max().item<double>());
  EXPECT_LE((actual.cpu() - serial).abs().max().item<double>(), tolerance * scale) << what;
}

inline void expect_same_gradients(
    const torch::nn::Module& actual, const torch::nn::Module& expected, double tolerance = 1e-10) {
  const auto ours = actual.named_parameters();
  for (const auto& parameter : expected.named_parameters())
    expect_close(
        ours[parameter.key()].grad(), parameter.value().grad(), tolerance, parameter.key());
}

inline void expect_same_parameters(
    const torch::nn::Module& actual, const torch::nn::Module& expected, double tolerance = 1e-10) {
  const auto ours = actual.named_parameters();
  for (const auto& parameter : expected.named_parameters())
    expect_close(ours[parameter.key()], parameter.value(), tolerance, parameter.key());
}

/// Compares the gradients of layers, which a rank may hold of a net, with those of the whole net.
inline void expect_gradients_of(const Layers& layers, const torch::nn::Module& serial,
    double tolerance = 1e-10, const std::string& what = "") {
  const auto expected = serial.named_parameters();
  for (const auto& layer : layers) {
    for (const auto& parameter : layer.value().ptr()->named_parameters()) {
      const std::string name = layer.key() + "." + parameter.key();
      expect_close(parameter.value().grad(), expected[name].grad(), tolerance,
          what + ": gradient of " + name);
    }
  }
}

/// Makes linear layers with tanh between them: widths {a, b, c} are two layers and one tanh.
inline torch::nn::Sequential make_chain(const std::vector<std::int64_t>& widths) {
  torch::nn::Sequential net;
  for (std::size_t index = 0; index + 1 < widths.size(); ++index) {
    if (index > 0) net->push_back(torch::nn::Tanh());
    net->push_back(torch::nn::Linear(widths[index], widths[index + 1]));
  }
  net->to(torch::kDouble);
  return net;
}

/// A net to train in stages, its copy to train alone, and a batch.
struct Problem {
  torch::nn::Sequential net, serial;
  torch::Tensor input, target;
};

/// Makes a chain and a batch of doubles for it: the same ones each time.
inline Problem make_problem(const std::vector<std::int64_t>& widths, std::int64_t batch) {
  torch::manual_seed(11);
  const auto net = make_chain(widths);
  return {net, copy_of(net), torch::randn({batch, widths.front()}, torch::kDouble),
      torch::randn({batch, widths.back()}, torch::kDouble)};
}

}  // namespace lockstep::testing
