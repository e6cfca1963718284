// serial.cpp with Lockstep: outside_test.py counts the lines that were added.
//
//     lockstep run --nproc-per-node 2 ./mnist FOLDER [STEPS]

#include <cstdio>
#include <cstdlib>
#include <lockstep/lockstep.h>
#include <memory>
#include <string>

#include <torch/torch.h>

struct Net : torch::nn::Module {
  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr};
  torch::nn::Dropout2d drop{nullptr};
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};

  Net() {
    conv1 = register_module("conv1", torch::nn::Conv2d(1, 10, 5));
    conv2 = register_module("conv2", torch::nn::Conv2d(10, 20, 5));
    drop = register_module("drop", torch::nn::Dropout2d());
    fc1 = register_module("fc1", torch::nn::Linear(320, 50));
    fc2 = register_module("fc2", torch::nn::Linear(50, 10));
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(torch::max_pool2d(conv1(x), 2));
    x = torch::relu(torch::max_pool2d(drop(conv2(x)), 2));
    x = x.view({-1, 320});
    x = torch::relu(fc1(x));
    x = torch::dropout(x, 0.5, is_training());
    return torch::log_softmax(fc2(x), 1);
  }
};

double accuracy(Net& net, const std::string& folder) {
  using torch::data::datasets::MNIST;
  const torch::NoGradGuard no_gradients;
  net.eval();
  auto set = MNIST(folder, MNIST::Mode::kTest)
                 .map(torch::data::transforms::Normalize<>(0.1307, 0.3081))
                 .map(torch::data::transforms::Stack<>());
  const auto size = static_cast<double>(*set.size());
  std::int64_t hits = 0;
  const auto loader = torch::data::make_data_loader(std::move(set), 1000);
  for (auto& batch : *loader)
    hits += net.forward(batch.data).argmax(1).eq(batch.target).sum().item<std::int64_t>();
  return static_cast<double>(hits) / size;
}

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "data";
  const long most = argc > 2 ? std::atol(argv[2]) : 1000000;
  auto world = lockstep::init_process_group();
  torch::manual_seed(1);
  auto net = std::make_shared<Net>();
  auto digits = lockstep::data::mnist(folder);
  lockstep::DistributedSampler sampler(digits.size(), world);
  lockstep::Loader loader(
      digits, sampler.epoch(0), 64, {.normalization = {.mean = {0.1307F}, .std = {0.3081F}}});
  lockstep::DistributedDataParallel model(net, world);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.5));
  long step = 0;
  for (auto& batch : loader) {
    if (step++ == most) break;
    optimizer.zero_grad();
    auto loss = torch::nll_loss(model(batch.input()), batch.target());
    loss.backward();
    optimizer.step();
    if (step % 100 == 0) std::printf("step %ld: loss %.4f\n", step, loss.item<float>());
  }
  if (world.rank() == 0) std::printf("accuracy %.4f\n", accuracy(*net, folder));
}
