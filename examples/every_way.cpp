// Trains one small model in every way of spreading it, on the same data, and prints the results:
// they are equal. Each function is a program's loop for one way. The ranks are threads here, made
// by run_ranks(); under `lockstep run` they would be processes.
//
//     ./every_way

#include <cstdio>
#include <functional>
#include <lockstep/lockstep.h>

#include <torch/torch.h>

namespace {

constexpr int kSteps = 5;
constexpr double kRate = 0.1;

using torch::optim::SGD;

struct Task {
  torch::nn::Sequential net{nullptr};
  torch::Tensor inputs, labels;

  /// Makes another model to train.
  torch::nn::Sequential copy() const {
    return torch::nn::Sequential(
        std::dynamic_pointer_cast<torch::nn::SequentialImpl>(net->clone()));
  }
  /// Returns a rank's share of the data.
  Task share(const lockstep::ProcessGroup& group) const {
    return {net, inputs.tensor_split(group.size())[static_cast<std::size_t>(group.rank())],
        labels.tensor_split(group.size())[static_cast<std::size_t>(group.rank())]};
  }
};

torch::Tensor loss_of(const torch::Tensor& output, const torch::Tensor& labels) {
  return torch::mse_loss(output, labels);
}

void serial(const Task& task, torch::nn::Sequential net) {
  SGD optimizer(net->parameters(), kRate);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    loss_of(net->forward(task.inputs), task.labels).backward();
    optimizer.step();
  }
}

void data_parallel(const Task& task, torch::nn::Sequential net) {
  lockstep::DataParallel model(net, lockstep::cpu_places(2));
  SGD optimizer(net->parameters(), kRate);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    loss_of(model(task.inputs), task.labels).backward();
    optimizer.step();
  }
}

void distributed(
    const Task& task, const torch::nn::Sequential& net, const lockstep::ProcessGroup& world) {
  const Task own = task.share(world);
  lockstep::DistributedDataParallel model(net, world);
  SGD optimizer(net->parameters(), kRate);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    loss_of(model(own.inputs), own.labels).backward();
    optimizer.step();
  }
}

void sharded_optimizer(
    const Task& task, const torch::nn::Sequential& net, const lockstep::ProcessGroup& world) {
  const Task own = task.share(world);
  lockstep::DistributedDataParallel model(net, world);
  lockstep::ShardedOptimizer optimizer(std::make_unique<SGD>(net->parameters(), kRate), world);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    loss_of(model(own.inputs), own.labels).backward();
    optimizer.step();
  }
}

void fully_sharded(
    const Task& task, const torch::nn::Sequential& net, const lockstep::ProcessGroup& world) {
  const Task own = task.share(world);
  lockstep::FullyShardedDataParallel model(net, world);
  SGD optimizer(model.parameters(), kRate);  // this rank's parts
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    loss_of(model(own.inputs), own.labels).backward();
    optimizer.step();
  }
  model.unwrap();  // the net has whole parameters again
}

void model_parallel(const Task& task, const torch::nn::Sequential& net) {
  const auto options =
      lockstep::PipelineOptions().chunks(1).schedule(lockstep::ScheduleKind::kSequential);
  lockstep::Pipeline model(lockstep::layers_of(net), {2, 3}, lockstep::cpu_places(2), options);
  SGD optimizer(model.parameters(), kRate);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    loss_of(model(task.inputs), task.labels).backward();
    optimizer.step();
  }
}

void pipeline(const Task& task, const torch::nn::Sequential& net) {
  const auto options =
      lockstep::PipelineOptions().chunks(4).schedule(lockstep::ScheduleKind::k1F1B);
  lockstep::Pipeline model(lockstep::layers_of(net), {2, 3}, lockstep::cpu_places(2), options);
  SGD optimizer(model.parameters(), kRate);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    model.step(task.inputs, task.labels, loss_of);
    optimizer.step();
  }
}

// Each rank is a replica: a pipeline over places of its process.
void replicas_of_pipelines(
    const Task& task, const torch::nn::Sequential& net, const lockstep::ProcessGroup& world) {
  const Task own = task.share(world);
  lockstep::Pipeline model(lockstep::layers_of(net), {2, 3}, lockstep::cpu_places(2),
      lockstep::PipelineOptions(), world);
  SGD optimizer(model.parameters(), kRate);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    model.step(own.inputs, own.labels, loss_of);
    optimizer.step();
  }
}

// Each rank is one stage of one replica. It has trained only its own layers, so they are
// gathered at the end for the comparison.
void replicas_of_stages(
    const Task& task, const torch::nn::Sequential& net, const lockstep::ProcessGroup& world) {
  const auto grid = lockstep::make_pipeline_grid(world, 2);
  const Task own = task.share(grid.replicas);
  lockstep::PipelineStage stage(
      lockstep::layers_of(net), {2, 3}, grid.stages, lockstep::PipelineOptions(), grid.replicas);
  SGD optimizer(stage.parameters(), kRate);
  for (int step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    stage.step(own.inputs, own.labels, loss_of);
    optimizer.step();
  }
  const torch::NoGradGuard no_grad;
  const auto parameters = net->parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i)
    grid.stages.broadcast(parameters[i], i < 2 ? 0 : 1).wait();
}

using OnRanks = void (*)(const Task&, const torch::nn::Sequential&, const lockstep::ProcessGroup&);

// Trains rank 0's net on this number of ranks.
std::function<void(const Task&, torch::nn::Sequential)> on_ranks(int ranks, OnRanks train) {
  return [=](const Task& task, const torch::nn::Sequential& net) {
    std::vector<torch::nn::Sequential> nets = {net};
    while (static_cast<int>(nets.size()) < ranks) nets.push_back(task.copy());
    lockstep::run_ranks(ranks, [&](const lockstep::ProcessGroup& world) {
      train(task, nets[static_cast<std::size_t>(world.rank())], world);
    });
  };
}

}  // namespace

int run(int, char**) {
  torch::manual_seed(0);
  using torch::nn::Linear, torch::nn::Tanh;
  const Task task{
      torch::nn::Sequential(Linear(20, 32), Tanh(), Linear(32, 16), Tanh(), Linear(16, 4)),
      torch::randn({16, 20}), torch::randn({16, 4})};
  const std::vector<std::pair<const char*, std::function<void(const Task&, torch::nn::Sequential)>>>
      ways = {{"serial", serial}, {"dp", data_parallel}, {"ddp", on_ranks(2, distributed)},
          {"ddp, ZeRO-1", on_ranks(2, sharded_optimizer)}, {"fsdp", on_ranks(2, fully_sharded)},
          {"mp", model_parallel}, {"pp", pipeline},
          {"ddp+pp in places", on_ranks(2, replicas_of_pipelines)},
          {"ddp+pp over ranks", on_ranks(4, replicas_of_stages)}};
  for (const auto& [name, train] : ways) {
    auto net = task.copy();
    train(task, net);
    const auto loss = loss_of(net->forward(task.inputs), task.labels);
    std::printf("%-18s loss %.6f\n", name, loss.item<double>());
  }
  return 0;
}

int main(int argc, char** argv) { return lockstep::run_program("every_way", run, argc, argv); }
