#include "model.h"

namespace nn = torch::nn;

namespace {

/// Halves width and height.
nn::Sequential block(std::int64_t in, std::int64_t out) {
  return nn::Sequential(nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1).bias(false)),
      nn::BatchNorm2d(out), nn::ReLU(), nn::MaxPool2d(2));
}

}  // namespace

NetImpl::NetImpl(std::int64_t classes) : head_(128, classes) {
  features_->extend(*block(3, 32));
  features_->extend(*block(32, 64));
  features_->extend(*block(64, 128));
  register_module("features", features_);
  register_module("head", head_);
}

torch::Tensor NetImpl::forward(const torch::Tensor& images) {
  return head_(features_->forward(images).mean({2, 3}));
}

Net make_net(std::int64_t classes) { return Net(classes); }
