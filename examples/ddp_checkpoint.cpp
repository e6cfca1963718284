// Saves a model that DistributedDataParallel trains and resumes from the file: rank 0 writes, all
// wait at a barrier until the file is there, every rank loads it onto its own place. Ranks are
// started in any of the ways that ddp_basic.cpp names:
//
//     ./ddp_checkpoint
//     ./ddp_checkpoint --spawn 2
//     lockstep run --nproc-per-node 2 ./ddp_checkpoint --checkpoint /tmp/toy.safetensors
//     ./ddp_checkpoint --init-method file:///tmp/meeting --world-size 2 --rank 0 &
//     ./ddp_checkpoint --init-method file:///tmp/meeting --world-size 2 --rank 1
//
// All ranks must see the folder of --checkpoint. To resume a training exactly, with its optimizer
// and its random numbers, use lockstep::Snapshot instead: hello.cpp.
//
// --output DIR keeps what each rank loaded, DIR/loaded-0.safetensors, and what it had at the end,
// DIR/rank-0.safetensors.

#include <cstdio>
#include <filesystem>
#include <lockstep/lockstep.h>

#include "flags.h"
#include "ranks.h"
#include "toy_task.h"
#include <torch/torch.h>

namespace {

void train_step(const ToyNet& net, const lockstep::ProcessGroup& world) {
  lockstep::DistributedDataParallel model(net, world);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  const ToyBatch batch = share_of_batch(world);
  optimizer.zero_grad();
  const auto device = net->net1->weight.device();
  torch::mse_loss(model(batch.inputs.to(device)), batch.labels.to(device)).backward();
  optimizer.step();
}

void train(const lockstep::ProcessGroup& world, const Flags& flags) {
  const std::string file = flags.text("checkpoint");
  const auto keep = [&](const ToyNet& net, const char* name) {
    if (flags.text("output") == "none") return;
    const auto path = lockstep::concat(flags.text("output"), "/", name, world.rank());
    lockstep::nn::save_weights(*net, path + ".safetensors");
  };
  ToyNet net;
  draw_weights(*net, world.rank());
  train_step(net, world);
  // All ranks have the same weights, so one of them saves.
  if (world.rank() == 0) lockstep::nn::save_weights(*net, file);
  world.barrier().wait();  // no rank reads before the file is there

  ToyNet resumed;
  draw_weights(*resumed, 100 + world.rank());
  const lockstep::Place place = own_places(world, 1).front();
  resumed->to(place.device);
  lockstep::nn::load_weights(
      *resumed, file);  // the file has no devices: weights go where the net is
  keep(resumed, "loaded-");
  train_step(resumed, world);
  // Each rank had loaded the file before it took part in the others' step.
  if (world.rank() == 0) std::filesystem::remove(file);
  keep(resumed, "rank-");
  std::printf("rank %d of %d: loaded %s onto %s and went on\n", world.rank(), world.size(),
      file.c_str(), lockstep::describe(place).c_str());
}

}  // namespace

int run(int argc, char** argv) {
  const Flags flags(
      argc, argv, rank_flags({{"checkpoint", "toy.safetensors"}, {"output", "none"}}));
  on_ranks(flags, [&](const auto& world) { train(world, flags); });
  return 0;
}

int main(int argc, char** argv) { return lockstep::run_program("ddp_checkpoint", run, argc, argv); }
