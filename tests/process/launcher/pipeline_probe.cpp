// A rank of a pipeline over Gloo, for tests that connect, kill and stop hosts.
//
//     pipeline_probe equal|endless TIMEOUT_SECONDS

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <ATen/ops/mse_loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include "lockstep/comm/rendezvous.h"
#include "lockstep/core/error.h"
#include "lockstep/parallel/pipeline/pipeline_stage.h"

namespace {

using lockstep::PipelineStage;

torch::nn::Sequential make_net() {
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(40, 300), torch::nn::Tanh(),
      torch::nn::Linear(300, 300), torch::nn::Tanh(), torch::nn::Linear(300, 5));
  net->to(torch::kDouble);
  return net;
}

torch::Tensor loss_of(const torch::Tensor& output, const torch::Tensor& target) {
  return at::mse_loss(output, target);
}

// The serial net trains beside the stage; returns the largest difference of parameters.
double difference_from_serial(const lockstep::ProcessGroup& world, int steps) {
  torch::nn::Sequential net = make_net(), serial = make_net();
  PipelineStage stage(
      lockstep::layers_of(net), {3, 2}, world, lockstep::PipelineOptions().chunks(4));
  torch::optim::SGD ours(stage.parameters(), 0.1), reference(serial->parameters(), 0.1);
  const auto input = torch::randn({32, 40}, torch::kDouble);
  const auto target = torch::randn({32, 5}, torch::kDouble);
  for (int step = 0; step < steps; ++step) {
    ours.zero_grad(), reference.zero_grad();
    stage.step(input, target, loss_of);
    loss_of(serial->forward(input), target).backward();
    ours.step(), reference.step();
    std::printf("rank %d: step %d\n", world.rank(), step + 1);
    std::fflush(stdout);
  }
  double largest = 0;
  const auto expected = serial->named_parameters();
  for (const auto& layer : stage.layers()) {
    for (const auto& own : layer.value().ptr()->named_parameters()) {
      const auto& other = expected[layer.key() + "." + own.key()];
      largest = std::max(largest, (own.value() - other).abs().max().item<double>());
    }
  }
  return largest;
}

}  // namespace

int main(int, char** arguments) {
  std::signal(SIGTERM, SIG_IGN);  // what it learns from its group is to be seen
  const bool endless = std::string(arguments[1]) == "endless";
  try {
    const auto world = lockstep::init_process_group(
        {.backend = "gloo", .timeout = std::chrono::seconds(std::atoi(arguments[2]))});
    const double difference = difference_from_serial(world, endless ? 1 << 30 : 4);
    if (difference > 1e-12) return 1;
    std::printf("rank %d: as the serial model\n", world.rank());
    return 0;
  } catch (const lockstep::TimeoutError& error) {
    std::printf("out of time: %s\n", error.what());
  } catch (const lockstep::CommError& error) {
    std::printf("lost: %s\n", error.what());
  }
  return 5;
}
