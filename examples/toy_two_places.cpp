// Trains a toy model whose halves are in two places, without pipelining: the output of the first
// half moves to the place of the second, and in backward the gradient moves back.
//
//     ./toy_two_places --steps 10

#include <cstdio>
#include <lockstep/lockstep.h>

#include "flags.h"
#include "two_places.h"
#include <torch/torch.h>

int train(int argc, char** argv) {
  const Flags flags(argc, argv, {{"steps", "10"}});
  const auto places = two_places();
  torch::manual_seed(0);
  torch::nn::Linear net1(10, 10), net2(10, 5);
  torch::nn::Sequential net(net1, torch::nn::ReLU(), net2);
  lockstep::Pipeline model(lockstep::layers_of(net), {2, 1},  // net1, ReLU | net2
      places, lockstep::PipelineOptions().chunks(1).schedule(lockstep::ScheduleKind::kSequential));
  torch::optim::SGD optimizer(model.parameters(), 0.001);

  const auto inputs = torch::randn({20, 10});
  const auto labels = torch::randn({20, 5}).to(places.back().device);
  for (int step = 1; step <= flags.number("steps"); ++step) {
    optimizer.zero_grad();
    const auto loss = torch::mse_loss(model(inputs), labels);
    loss.backward();
    optimizer.step();
    std::printf("step %d: loss %.6f\n", step, loss.item<double>());
  }
  return 0;
}

int main(int argc, char** argv) {
  return lockstep::run_program("toy_two_places", train, argc, argv);
}
