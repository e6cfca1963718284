// Trains a small net on Fashion-MNIST with as many ranks as the launcher starts; alone, it trains
// serially. Stopped at any time and started again, even with another number of ranks, it resumes
// with the epoch that it did not finish; remove the folder hello-run to start afresh.
//
//     lockstep run --nproc-per-node 2 ./hello

#include <iostream>
#include <lockstep/lockstep.h>

#include <torch/torch.h>

int train(int, char**) {
  auto world =
      lockstep::init_process_group();  // from the launcher's environment; alone: a group of one
  if (world.rank() == 0) std::cout << "ranks: " << world.size() << std::endl;

  torch::nn::Sequential net(
      torch::nn::Linear(784, 128), torch::nn::ReLU(), torch::nn::Linear(128, 10));
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  lockstep::Snapshot snapshot("hello-run", world);
  auto [epoch, step] = snapshot.load(*net, optimizer);  // {0, 0} the first time
  lockstep::DistributedDataParallel model(net, world);

  auto clothes = lockstep::data::fashion_mnist();  // uint8 in memory, checked
  lockstep::DistributedSampler sampler(clothes.size(), world);
  for (; epoch < 2; ++epoch) {
    torch::Tensor loss;
    for (auto& batch : lockstep::Loader(clothes, sampler.epoch(epoch), 64)) {
      optimizer.zero_grad();
      loss = torch::cross_entropy_loss(model(batch.input().flatten(1)), batch.target());
      loss.backward();  // returns with the gradients averaged over all ranks
      optimizer.step();
    }
    world.all_reduce(loss.detach(), lockstep::ReduceOp::kMean).wait();
    if (world.rank() == 0)
      std::cout << "epoch " << epoch + 1 << ": last loss " << loss.item<float>() << std::endl;
    snapshot.save(*net, optimizer, {.epoch = epoch + 1});  // written while the next epoch trains
  }
  if (world.rank() == 0) std::cout << "trained: the snapshots are in hello-run" << std::endl;
  return 0;
}

int main(int argc, char** argv) { return lockstep::run_program("hello", train, argc, argv); }
