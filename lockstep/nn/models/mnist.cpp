#include "lockstep/nn/models/mnist.h"

#include <torch/nn/modules/linear.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/models/mnist_block.h"

namespace lockstep::nn {
namespace {

torch::Tensor checked_images(torch::Tensor images) {
  check(
      images.dim() == 4 && images.size(1) == 1 && images.size(2) == 28 && images.size(3) == 28,
      "mnist net: takes images of [N, 1, 28, 28], not ", images.sizes());
  return images;
}

}  // namespace

MnistSmallImpl::MnistSmallImpl(std::int64_t classes) : classes_(classes) {
  append("input", layer_of(checked_images));
  append_module("0", MnistBlock(1, 32));
  append("3", layer_of(flatten_layer));
  append_module("4", torch::nn::Linear(6272, 64));
  append("5", layer_of(relu_layer));
  append_module("6", torch::nn::Linear(64, classes));
}

MnistLargeImpl::MnistLargeImpl(std::int64_t classes) : classes_(classes) {
  append("input", layer_of(checked_images));
  append_module("0", MnistBlock(1, 128));
  append_module("3", MnistBlock(128, 256));
  append_module("6", MnistBlock(256, 512));
  append("9", layer_of(flatten_layer));
  append_module("10", torch::nn::Linear(4608, 512));
  append("11", layer_of(relu_layer));
  append_module("12", torch::nn::Linear(512, 512));
  append("13", layer_of(relu_layer));
  append_module("14", torch::nn::Linear(512, classes));
}

}  // namespace lockstep::nn
