// Trains replicas of a model that is too large for one place: each rank cuts it into two halves, in
// two places, and DistributedDataParallel averages the gradients of both over the ranks.
// Ranks are started in any of the ways that ddp_basic.cpp names:
//
//     ./ddp_model_parallel                                     alone: one model in two places
//     ./ddp_model_parallel --spawn 2                           on four cores, one for each place
//     lockstep run --nproc-per-node 2 ./ddp_model_parallel
//     ./ddp_model_parallel --init-method tcp://127.0.0.1:29500 --world-size 2 --rank 0 &
//     ./ddp_model_parallel --init-method tcp://127.0.0.1:29500 --world-size 2 --rank 1
//
// --output DIR keeps the weights of each rank as DIR/rank-0.safetensors and so on.

#include <cstdio>
#include <lockstep/lockstep.h>

#include "flags.h"
#include "ranks.h"
#include "toy_task.h"
#include <torch/torch.h>

namespace {

/// The toy net in two places: net1 and the ReLU in the first, net2 in the second.
class SplitNetImpl : public torch::nn::Module {
 public:
  SplitNetImpl(const ToyNet& net, const std::vector<lockstep::Place>& places)
      : halves_(lockstep::layers_of(torch::nn::Sequential(net->net1, net->relu, net->net2)), {2, 1},
            places,
            lockstep::PipelineOptions().chunks(1).schedule(lockstep::ScheduleKind::kSequential)) {
    register_module("net1", net->net1);
    register_module("net2", net->net2);
  }

  /// Computes the output, in the second place, from inputs anywhere.
  torch::Tensor forward(const torch::Tensor& inputs) { return halves_(inputs); }

 private:
  lockstep::Pipeline halves_;
};
TORCH_MODULE(SplitNet);

void train(const lockstep::ProcessGroup& world, const std::string& output) {
  const auto places = own_places(world, 2);
  ToyNet whole;
  draw_weights(*whole, world.rank());
  SplitNet net(whole, places);
  lockstep::DistributedDataParallel model(net, world);
  torch::optim::SGD optimizer(net->parameters(), 0.1);

  const ToyBatch batch = share_of_batch(world);
  optimizer.zero_grad();
  const auto labels = batch.labels.to(places.back().device);
  torch::mse_loss(model(batch.inputs), labels).backward();
  optimizer.step();
  std::printf("rank %d of %d: a step in %s and %s\n", world.rank(), world.size(),
      lockstep::describe(places.front()).c_str(), lockstep::describe(places.back()).c_str());
  if (output != "none")
    lockstep::nn::save_weights(
        *net, lockstep::concat(output, "/rank-", world.rank(), ".safetensors"));
}

}  // namespace

int run(int argc, char** argv) {
  const Flags flags(argc, argv, rank_flags({{"output", "none"}}));
  on_ranks(flags, [&](const auto& world) { train(world, flags.text("output")); });
  return 0;
}

int main(int argc, char** argv) {
  return lockstep::run_program("ddp_model_parallel", run, argc, argv);
}
