#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/ops/rand.h>
#include <torch/types.h>

#include "lockstep/nn/models/model.h"

namespace lockstep::nn {

/// Lists the models of images, of the VGGs, which are large, the smallest with batch norm for them
/// all.
inline std::vector<std::string> models_of_each_kind() {
  auto names = model_names();
  std::erase_if(names, [](const std::string& name) {
    return (name.starts_with("vgg") && name != "vgg11-bn") || net_needs(name).context > 0;
  });
  return names;
}

/// Makes random images that the model of that name takes; ResNets and VGGs get 3 x 32 x 32.
inline torch::Tensor images_for(const std::string& model, std::int64_t count) {
  if (model == "toy") return at::rand({count, 10});
  if (model.starts_with("mnist")) return at::rand({count, 1, 28, 28});
  return at::rand({count, 3, 32, 32});
}

/// Makes a gtest name of a model's.
inline std::string test_name(std::string model) {
  for (char& letter : model) letter = letter == '-' ? '_' : letter;
  return model;
}

}  // namespace lockstep::nn
