// Takes one step of DistributedDataParallel: every rank computes on its share of a batch, and all
// end with the weights that the whole batch gives. Any number of ranks, started in any way:
//
//     ./ddp_basic                                          alone: a serial step on the whole batch
//     ./ddp_basic --spawn 2                                two threads of one process
//     lockstep run --nproc-per-node 2 ./ddp_basic          two processes; or torchrun --no-python
//
// or each rank by hand; they meet in a file that does not exist yet, or at an address:
//
//     ./ddp_basic --init-method file:///tmp/meeting --world-size 2 --rank 0 &
//     ./ddp_basic --init-method file:///tmp/meeting --world-size 2 --rank 1
//     ./ddp_basic --init-method tcp://127.0.0.1:29500 --world-size 2 --rank 0 &
//     ./ddp_basic --init-method tcp://127.0.0.1:29500 --world-size 2 --rank 1
//
// --output DIR keeps the weights of each rank as DIR/rank-0.safetensors and so on.

#include <cstdio>
#include <lockstep/lockstep.h>

#include "flags.h"
#include "ranks.h"
#include "toy_task.h"
#include <torch/torch.h>

namespace {

void train(const lockstep::ProcessGroup& world, const std::string& output) {
  ToyNet net;
  draw_weights(*net, world.rank());  // they differ until DDP copies rank 0's to all
  lockstep::DistributedDataParallel model(net, world);
  torch::optim::SGD optimizer(net->parameters(), 0.1);

  const ToyBatch batch = share_of_batch(world);
  optimizer.zero_grad();
  const auto loss = torch::mse_loss(model(batch.inputs), batch.labels);
  loss.backward();
  optimizer.step();
  std::printf("rank %d of %d (%s): loss %.6f of %d samples\n", world.rank(), world.size(),
      world.backend_name().c_str(), loss.item<double>(), static_cast<int>(batch.inputs.size(0)));
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

int main(int argc, char** argv) { return lockstep::run_program("ddp_basic", run, argc, argv); }
