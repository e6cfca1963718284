#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <ATen/ops/rand_like.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/ordered_dict.h>
#include <torch/types.h>

namespace lockstep {

using Layers = torch::OrderedDict<std::string, torch::nn::AnyModule>;

/// Makes a chain of layers named 0, 1, ...
template <typename... Modules>
Layers chain(Modules... modules) {
  Layers layers;
  (layers.insert(std::to_string(layers.size()), torch::nn::AnyModule(std::move(modules))), ...);
  return layers;
}

/// Takes its time.
struct Delay : torch::nn::Module {
  explicit Delay(int duration) : milliseconds(duration) {}
  torch::Tensor forward(torch::Tensor x) {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    return x;
  }
  int milliseconds;
};

/// Keeps `times` tensors of its input's size for backward, beside its output.
struct Expand : torch::nn::Module {
  explicit Expand(int kept) : times(kept) {}
  torch::Tensor forward(torch::Tensor x) {
    for (int time = 0; time < times; ++time) x = x + at::rand_like(x).requires_grad_();
    return x;
  }
  int times;
};

}  // namespace lockstep
