// A serial program as many are written with LibTorch: a module, data, an optimiser, a loop.

#include <cstdio>

#include <torch/torch.h>

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("conv", conv);
    register_module("hidden", hidden);
    register_module("drop", drop);
    register_module("out", out);
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::max_pool2d(torch::relu(conv(x)), 4);
    x = drop(torch::relu(hidden(x.view({-1, 8 * 7 * 7}))));
    return torch::log_softmax(out(x), 1);
  }

  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(1, 8, 5).padding(2)};
  torch::nn::Linear hidden{8 * 7 * 7, 32}, out{32, 10};
  torch::nn::Dropout drop{0.2};
};
TORCH_MODULE(Net);

int main() {
  torch::manual_seed(1);
  auto images = torch::data::datasets::MNIST("data").map(torch::data::transforms::Stack<>());
  auto loader = torch::data::make_data_loader(std::move(images), 64);
  Net net;
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.5));
  for (int epoch = 0; epoch < 5; ++epoch) {
    for (auto& batch : *loader) {
      optimizer.zero_grad();
      auto loss = torch::nll_loss(net(batch.data), batch.target);
      loss.backward();
      optimizer.step();
      std::printf("epoch %d, loss %.4f\n", epoch, loss.item<double>());
    }
  }
}
