// Nets of your own for `lockstep train --plugin`: the net of LibTorch's MNIST example as it is, and
// a chain of layers, which can be cut into stages. A loss, and a task.
//
//     lockstep train --plugin ./nets.so --model mnist-example --nproc-per-node 2
//     lockstep train --plugin ./nets.so --model chain --parallel pp --loss focal
//     lockstep train --plugin ./nets.so --model chain --task mirrored --eval-metric top1

#include <lockstep/lockstep.h>

#include <torch/torch.h>

namespace {

struct NetImpl : torch::nn::Module {
  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr};
  torch::nn::Dropout2d drop{nullptr};
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};

  explicit NetImpl(std::int64_t classes) {
    conv1 = register_module("conv1", torch::nn::Conv2d(1, 10, 5));
    conv2 = register_module("conv2", torch::nn::Conv2d(10, 20, 5));
    drop = register_module("drop", torch::nn::Dropout2d());
    fc1 = register_module("fc1", torch::nn::Linear(320, 50));
    fc2 = register_module("fc2", torch::nn::Linear(50, classes));
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(torch::max_pool2d(conv1(x), 2));
    x = torch::relu(torch::max_pool2d(drop(conv2(x)), 2));
    x = torch::relu(fc1(x.flatten(1)));
    return fc2(torch::dropout(x, 0.5, is_training()));
  }
};

torch::nn::Sequential chain(std::int64_t classes) {
  using namespace torch::nn;
  return Sequential(Conv2d(Conv2dOptions(1, 8, 3).padding(1)), BatchNorm2d(8), ReLU(),
      MaxPool2d(MaxPool2dOptions(2)), Flatten(), Linear(8 * 14 * 14, 32), ReLU(),
      Linear(32, classes));
}

// Of Lin et al., "Focal Loss for Dense Object Detection": what is known well counts little.
torch::Tensor focal(const torch::Tensor& scores, const torch::Tensor& labels) {
  const torch::Tensor log_share = scores.log_softmax(1).gather(1, labels.unsqueeze(1));
  return -((1 - log_share.exp()).square() * log_share).mean();
}

// What an image shows is in its mirror image too: beside the cross entropy, both are to have the
// same scores. Takes any net.
lockstep::nn::TaskResult mirrored(
    const lockstep::nn::TaskNet& net, const lockstep::nn::TaskBatch& batch) {
  const torch::Tensor scores = net(batch.input());
  const torch::Tensor& labels = batch.target();
  const torch::Tensor apart = torch::mse_loss(net(batch.input().flip(3)), scores);
  const torch::Tensor hits = scores.argmax(1).eq(labels).to(torch::kFloat);
  return {.loss = torch::cross_entropy_loss(scores, labels) + 0.1 * apart,
      .numbers = {{"accuracy", hits.mean()}, {"apart", apart}}};
}

}  // namespace

LOCKSTEP_MODEL(
    "mnist-example", [](std::int64_t classes) { return std::make_shared<NetImpl>(classes); })
LOCKSTEP_MODEL("chain", chain)
LOCKSTEP_LOSS("focal", focal)
LOCKSTEP_TASK("mirrored", mirrored)
