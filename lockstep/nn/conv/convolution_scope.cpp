// Note [Convolutions of any module]
//
// C++ modules hold their layers by type, so a layer inside a user's block cannot be replaced; the
// operator that it calls can. LibTorch's own conv2d is composed of others and has no kernel for the
// CPU: ours takes that place, above and below autograd, in the whole process and all its threads,
// when it is first asked for. From then on a variable says what it does. Autocast stands above and
// has cast its arguments.

#include <atomic>
#include <mutex>
#include <vector>

#include <torch/library.h>

#include "lockstep/nn/conv/convolution.h"

namespace lockstep::nn::conv {
namespace {

std::atomic<Convolutions> who_computes{Convolutions::kOneDnn};

// Ranks may be threads, whose scopes end in any order.
std::mutex scopes_mutex;
std::vector<const ConvolutionScope*> scopes;

void follow_newest() {
  who_computes = scopes.empty() ? Convolutions::kOneDnn : scopes.back()->who();
}

at::Tensor dispatched_conv2d(const at::Tensor& images, const at::Tensor& weight,
    const std::optional<at::Tensor>& bias, at::IntArrayRef stride, at::IntArrayRef padding,
    at::IntArrayRef dilation, std::int64_t groups) {
  return conv2d({.images = images,
                    .weight = weight,
                    .bias = bias.value_or(at::Tensor()),
                    .stride = stride,
                    .padding = padding,
                    .dilation = dilation,
                    .groups = groups},
      who_computes);
}

void take_place(torch::Library& library) { library.impl("conv2d", dispatched_conv2d); }

void take_places() {
  using torch::Library;
  static Library above(Library::IMPL, "aten", c10::DispatchKey::AutogradCPU, __FILE__, __LINE__);
  static Library below(Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
  static const bool kTaken = (take_place(above), take_place(below), true);
  static_cast<void>(kTaken);
}

}  // namespace

ConvolutionScope::ConvolutionScope(Convolutions who) : who_(who) {
  if (who != Convolutions::kOneDnn) take_places();
  const std::lock_guard lock(scopes_mutex);
  scopes.push_back(this);
  follow_newest();
}

ConvolutionScope::~ConvolutionScope() {
  const std::lock_guard lock(scopes_mutex);
  std::erase(scopes, this);
  follow_newest();
}

}  // namespace lockstep::nn::conv
