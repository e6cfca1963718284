#pragma once

#include <optional>
#include <span>

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>
#include <torch/nn/modules/batchnorm.h>

#include "lockstep/nn/fused/batch_norm_kernel.h"
#include "lockstep/nn/kernels.h"

namespace lockstep::nn::fused {

/// Computes relu(norm(input) + addend), of an undefined addend relu(norm(input)), by kernels that
/// read and write values little more than half as often as LibTorch's operators (see Note [Batch
/// norm in four passes]). A backward that is to be differentiated again is LibTorch's.
///
/// input and addend are [N, C, H, W]. The kernels take what is_batch_norm_fused() says; everything
/// else, and all that a rule for batch norm computes in its own way, is LibTorch's. They agree with
/// it within 1e-5 of the values' size, have the same bits for any number of threads, and sum
/// statistics in double. In bf16 the sums are those of the fp32 kernel, and only results are
/// rounded. Without a KernelScope all of it is LibTorch's.
at::Tensor batch_norm_relu(
    torch::nn::BatchNorm2d& norm, const at::Tensor& input, const at::Tensor& addend = {});

struct SqueezeExciteLayers;

/// The rest of the same operator behind batch norm.
struct AfterBatchNorm {
  Activation activation = Activation::kNone;
  at::Tensor addend = {};                           ///< or undefined; only before ReLU
  const SqueezeExciteLayers* excitation = nullptr;  ///< behind the activation, or none
};

/// The result of a batch norm; what follows it may be in it already.
struct BatchNormResult {
  at::Tensor maps;
  bool is_activated;
};

/// Calls a batch norm, and computes what follows in the same passes if the kernels can.
BatchNormResult batch_norm_before(
    const AfterBatchNorm& after, c10::function_ref<at::Tensor()> norm);

/// Applies LibTorch's activation in place.
at::Tensor activate(at::Tensor maps, Activation activation);

/// LibTorch's batch norm on the CPU, by the kernels where they can and kernels_in_use() says so;
/// without an activation where no batch_norm_before() asks for it.
at::Tensor dispatched_batch_norm(const at::Tensor& input, const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& running_mean,
    const std::optional<at::Tensor>& running_var, bool training, double momentum, double eps,
    bool cudnn_enabled);

/// Returns the kernels that may run, the fastest last.
std::span<const BatchNormKernel* const> batch_norm_kernels();

/// A call of LibTorch's batch norm in training.
struct BatchNormArguments {
  const at::Tensor& input;
  at::Tensor weight, bias;               ///< [C]
  at::Tensor running_mean, running_var;  ///< [C], updated in place; or both undefined
  double momentum, eps;
};

/// Returns whether the kernels can: on the CPU, channels-last, fp32 or bf16 with fp32 parameters;
/// an addend has the input's form.
bool is_batch_norm_fused(const BatchNormArguments& given, const at::Tensor& addend);

/// Computes what is_batch_norm_fused() allows.
at::Tensor fused_batch_norm(
    const BatchNormKernel& kernel, const BatchNormArguments& given, const AfterBatchNorm& after);

}  // namespace lockstep::nn::fused
