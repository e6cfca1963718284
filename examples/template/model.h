#pragma once

#include <cstdint>

#include <torch/torch.h>

/// The model that is trained: images [N, 3, height, width] to class scores [N, classes]. Replace it
/// by your own; any module will do.
class NetImpl : public torch::nn::Module {
 public:
  explicit NetImpl(std::int64_t classes);
  torch::Tensor forward(const torch::Tensor& images);

 private:
  torch::nn::Sequential features_;
  torch::nn::Linear head_;
};
TORCH_MODULE(Net);

/// Makes the model. For one of Lockstep's models write `using Net = lockstep::nn::Model;` instead
/// of the class, and here `return lockstep::nn::make_model("resnet18-cifar", classes);`.
Net make_net(std::int64_t classes);
