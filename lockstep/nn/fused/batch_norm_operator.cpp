// Note [Batch norm before ReLU]
//
// Batch norm in training is ours wherever it covers a call. A block computes
// relu(norm(x) + shortcut) by three operators. It says beforehand, for its thread, that an addend
// and ReLU follow the next batch norm; LibTorch's layer then does all that it does in training, and
// the operator that it calls at last is ours (see Note [Operators of any module]).
// Operator rules stand above: what they compute without that operator, such as batch norm over all
// ranks, leaves the announcement unread, and the block adds and rectifies by itself.

#include <optional>
#include <utility>

#include <ATen/ops/batch_norm_native.h>
#include <torch/library.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/fused/batch_norm_relu.h"
#include "lockstep/nn/kernels.h"

namespace lockstep::nn::fused {
namespace {

/// The operators behind the next batch norm of this thread.
class Following {
 public:
  explicit Following(const at::Tensor& addend)
      : addend_(addend), before_(std::exchange(current(), this)) {}
  ~Following() { current() = before_; }
  Following(const Following&) = delete;
  Following& operator=(const Following&) = delete;

  static Following*& current() {
    static thread_local Following* newest = nullptr;
    return newest;
  }

  const at::Tensor& addend() const { return addend_; }
  const at::Tensor& result() const { return result_; }
  void set_result(at::Tensor result) { result_ = std::move(result); }

 private:
  const at::Tensor& addend_;
  Following* before_;
  at::Tensor result_;
};

const BatchNormKernel& fastest_batch_norm() {
  static const BatchNormKernels kFound = batch_norm_kernels();
  return *kFound.kernels[kFound.count - 1];
}

at::Tensor given(const std::optional<at::Tensor>& tensor) { return tensor.value_or(at::Tensor()); }

at::Tensor dispatched_batch_norm(const at::Tensor& input, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& running_mean,
    const std::optional<at::Tensor>& running_var, bool training, double momentum, double eps,
    bool cudnn_enabled) {
  // An announcement is for one batch norm.
  Following* following = Following::current();
  if (following != nullptr && following->result().defined()) following = nullptr;
  const AfterBatchNorm after{.rectifies = following != nullptr,
      .addend = following != nullptr ? following->addend() : at::Tensor()};
  const BatchNormArguments arguments{.input = input,
      .weight = given(weight),
      .bias = given(bias),
      .running_mean = given(running_mean),
      .running_var = given(running_var),
      .momentum = momentum,
      .eps = eps};
  const bool is_ours = training && kernels_in_use() != Kernels::kLibTorch &&
                       is_batch_norm_fused(arguments, after.addend);
  if (!is_ours)
    return at::native::batch_norm(
        input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled);
  auto result = fused_batch_norm(fastest_batch_norm(), arguments, after);
  if (following != nullptr) following->set_result(result);
  return result;
}

void register_in(torch::Library& library) { library.impl("batch_norm", dispatched_batch_norm); }

}  // namespace

void take_place_of_batch_norm() {
  using torch::Library;
  static Library above(Library::IMPL, "aten", c10::DispatchKey::AutogradCPU, __FILE__, __LINE__);
  static Library below(Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
  static const bool kTaken = (register_in(above), register_in(below), true);
  static_cast<void>(kTaken);
}

at::Tensor batch_norm_relu(
    torch::nn::BatchNorm2d& norm, const at::Tensor& input, const at::Tensor& addend) {
  Following following(addend);
  auto maps = norm->forward(input);
  if (following.result().is_same(maps)) return maps;
  if (following.result().defined())
    throw Error("batch_norm_relu: a rule for batch norm changes what the layer's operator gives");
  if (addend.defined()) maps.add_(addend);
  return maps.relu_();
}

}  // namespace lockstep::nn::fused
