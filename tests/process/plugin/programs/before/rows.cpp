// A serial program with a transformer: it reads an image as a sentence of 28 rows.

#include <cstdio>

#include <torch/torch.h>

namespace nn = torch::nn;

nn::Sequential make_net() {
  const auto layer = [] {
    return nn::TransformerEncoderLayer(
        nn::TransformerEncoderLayerOptions(32, 4).dim_feedforward(64).dropout(0));
  };
  return nn::Sequential(
      nn::Functional([](torch::Tensor x) { return x.squeeze(1).transpose(0, 1); }),
      nn::Linear(28, 32), layer(), layer(),
      nn::Functional([](torch::Tensor x) { return x.mean(0); }), nn::Linear(32, 10));
}

int main() {
  torch::manual_seed(1);
  auto images = torch::data::datasets::MNIST("data").map(torch::data::transforms::Stack<>());
  auto loader = torch::data::make_data_loader(std::move(images), 64);
  auto net = make_net();
  torch::optim::Adam optimizer(net->parameters(), 1e-3);
  for (auto& batch : *loader) {
    optimizer.zero_grad();
    auto loss = torch::cross_entropy_loss(net->forward(batch.data), batch.target);
    loss.backward();
    optimizer.step();
    std::printf("loss %.4f\n", loss.item<double>());
  }
}
