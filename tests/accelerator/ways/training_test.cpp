#include <gmock/gmock.h>
#include <vector>

#include "tests/accelerator/runtime.h"
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>

namespace lockstep::emulated {
namespace {

namespace nn = torch::nn;

nn::Sequential small_net() {
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(1, 4, 3)), nn::BatchNorm2d(4), nn::ReLU(),
      nn::MaxPool2d(2), nn::Flatten(), nn::Linear(4 * 3 * 3, 10));
}

std::vector<double> losses_on(const torch::Device& device, std::uint64_t seed) {
  install();
  Runtime::get().streams().set_seed(seed);
  torch::manual_seed(1);
  nn::Sequential net = small_net();
  const torch::Tensor images = torch::rand({6, 1, 8, 8}), labels = torch::arange(6);
  net->to(device);
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(0.01));
  torch::Tensor all = torch::zeros({5}, device);
  for (int step = 0; step < 5; ++step) {
    optimizer.zero_grad();
    const torch::Tensor loss =
        nn::functional::cross_entropy(net->forward(images.to(device)), labels.to(device));
    loss.backward();
    optimizer.step();
    all[step] = loss.detach();
  }
  const torch::Tensor host = all.cpu().to(torch::kDouble);
  Runtime::get().streams().set_seed(0);
  return {host.const_data_ptr<double>(), host.const_data_ptr<double>() + 5};
}

TEST(EmulatedTraining, GivesTheLossesOfTheCpu) {
  const std::vector<double> expected = losses_on(torch::kCPU, 0);
  for (const std::uint64_t seed : {0U, 1U, 2U})
    EXPECT_THAT(losses_on(torch::Device(c10::kPrivateUse1, 1), seed),
        ::testing::Pointwise(::testing::DoubleNear(1e-6), expected));
}

}  // namespace
}  // namespace lockstep::emulated
