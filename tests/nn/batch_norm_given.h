#pragma once

#include <cstdint>
#include <ostream>

#include <ATen/ops/randn.h>
#include <torch/types.h>

namespace lockstep::nn::fused {

inline constexpr double kEps = 1e-5, kMomentum = 0.1;

struct NormShape {
  std::int64_t images, channels, height, width;
};

inline std::ostream& operator<<(std::ostream& out, const NormShape& shape) {
  return out << shape.images << "x" << shape.channels << "x" << shape.height << "x" << shape.width;
}

inline at::Tensor layer_values(const NormShape& shape, at::ScalarType type = at::kFloat) {
  return at::randn({shape.images, shape.channels, shape.height, shape.width})
      .to(type)
      .contiguous(at::MemoryFormat::ChannelsLast);
}

enum class Behind { kNothing, kRelu, kAdditionAndRelu };
inline constexpr Behind kAnythingBehind[] = {
    Behind::kNothing, Behind::kRelu, Behind::kAdditionAndRelu};

inline std::ostream& operator<<(std::ostream& out, Behind behind) {
  constexpr const char* kNames[] = {"nothing", "ReLU", "an addition and ReLU"};
  return out << kNames[static_cast<int>(behind)];
}

/// The input of a layer and of its backward pass. Values have a mean far from zero.
struct NormGiven {
  bool rectifies;
  at::Tensor input, addend, gradient, weight, bias;

  NormGiven(const NormShape& shape, Behind behind, at::ScalarType type = at::kFloat)
      : rectifies(behind != Behind::kNothing),
        input((layer_values(shape) * 2 + 5).to(type)),
        addend(behind == Behind::kAdditionAndRelu ? layer_values(shape, type) : at::Tensor()),
        gradient(layer_values(shape, type)),
        weight(at::randn({shape.channels})),
        bias(at::randn({shape.channels})) {}
};

inline at::Tensor leaf(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.detach().clone().set_requires_grad(true) : at::Tensor();
}

}  // namespace lockstep::nn::fused
