// Small nets with the layers that a test is about, where the catalogue has them in large nets only.

#include "lockstep/parallel/pipeline/layers.h"

#include <ATen/ops/clamp_max.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/real.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include "lockstep/nn/models/plugin.h"

namespace {

using namespace torch::nn;

// For grey images of 8 x 8.
Sequential dropout(std::int64_t classes) {
  return Sequential(Flatten(), Linear(64, 64), ReLU(), Dropout(0.5), Linear(64, 32), ReLU(),
      Dropout(0.3), Linear(32, classes));
}

// 3x3 convolutions with as many channels as `--kernels auto` computes itself, on images of 8 x 8.
Sequential convolutions(std::int64_t classes) {
  const auto conv = [](std::int64_t in) { return Conv2d(Conv2dOptions(in, 32, 3).padding(1)); };
  return Sequential(conv(1), BatchNorm2d(32), ReLU(), conv(32), BatchNorm2d(32), ReLU(), conv(32),
      ReLU(), Flatten(), Linear(2048, classes));
}

// Computes its inputs times 1e-40, a denormal number, and back: without these, zeros.
struct DenormalImpl : Module {
  // NOLINTNEXTLINE(readability-convert-member-functions-to-static): AnyModule needs a member
  at::Tensor forward(const at::Tensor& images) { return images * 1e-20F * 1e-20F * 1e20F * 1e20F; }
};
TORCH_MODULE(Denormal);

Sequential denormal(std::int64_t classes) {
  return Sequential(Flatten(), Denormal(), Linear(LinearOptions(64, classes).bias(false)));
}

// Has another buffer once it has computed, so it is not what its factory makes.
struct GrowingImpl : Module {
  at::Tensor forward(const at::Tensor& images) {
    if (buffers().empty()) register_buffer("seen", at::zeros({1}));
    return images;
  }
};
TORCH_MODULE(Growing);

Sequential growing(std::int64_t classes) {
  return Sequential(Flatten(), Growing(), Linear(784, classes));
}

// A skip connection around two layers.
Sequential skip(std::int64_t classes) {
  return Sequential(Flatten(), lockstep::Stash("in"), Linear(784, 32), ReLU(), Linear(32, 784),
      lockstep::Pop("in"), Linear(784, classes));
}

// Has a layer that forward leaves out.
struct HalfUsedImpl : Module {
  explicit HalfUsedImpl(std::int64_t classes)
      : used(register_module("used", Linear(784, classes))),
        left_out(register_module("left_out", Linear(2, 2))) {}
  at::Tensor forward(const at::Tensor& images) { return used(images.flatten(1)); }
  Linear used, left_out;
};

// One tensor under two names.
struct TiedImpl : Module {
  at::Tensor forward(const at::Tensor& images) { return images.matmul(a).tanh().matmul(b).tanh(); }
  at::Tensor a = register_parameter("a", at::randn({64, 64}) / 8);
  at::Tensor b = register_parameter("b", a);
};
TORCH_MODULE(Tied);

Sequential tied(std::int64_t classes) {
  return Sequential(Flatten(), Linear(784, 64), Tied(), Linear(64, classes));
}

// Grey levels as words, whose gradients are sparse.
struct WordsImpl : Module {
  at::Tensor forward(const at::Tensor& images) {
    return words((images.flatten(1).abs() * 100).to(at::kLong).clamp_max(255)).mean(1);
  }
  Embedding words = register_module("words", Embedding(EmbeddingOptions(256, 8).sparse(true)));
};
TORCH_MODULE(Words);

Sequential sparse(std::int64_t classes) { return Sequential(Words(), Linear(8, classes)); }

struct ComplexImpl : Module {
  at::Tensor forward(const at::Tensor& images) {
    return at::real(images.flatten(1).to(weight.scalar_type()).matmul(weight));
  }
  explicit ComplexImpl(at::ScalarType type)
      : weight(register_parameter("weight", at::ones({784, 8}, type))) {}
  at::Tensor weight;
};
TORCH_MODULE(Complex);

Sequential complex64(std::int64_t classes) {
  return Sequential(Complex(at::kComplexFloat), Linear(8, classes));
}

Sequential complex128(std::int64_t classes) {
  return Sequential(Complex(at::kComplexDouble),
      Functional([](at::Tensor x) { return x.to(at::kFloat); }), Linear(8, classes));
}

}  // namespace

LOCKSTEP_MODEL("skip", skip)
LOCKSTEP_MODEL("half-used", [](std::int64_t n) { return std::make_shared<HalfUsedImpl>(n); })
LOCKSTEP_MODEL("complex64", complex64)
LOCKSTEP_MODEL("complex128", complex128)
LOCKSTEP_MODEL("sparse", sparse)
LOCKSTEP_MODEL("tied", tied)
LOCKSTEP_MODEL("denormal", denormal)
LOCKSTEP_MODEL("dropout", dropout)
LOCKSTEP_MODEL("growing", growing)
LOCKSTEP_MODEL("convolutions", convolutions)
