#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/nn/fused/batch_norm_kernel.h"

namespace lockstep::nn::fused {

/// Mean and sum of squared deviations of each channel, over `count` values; double [C].
struct BatchStatistics {
  at::Tensor mean, squares;
  std::int64_t count;
};

/// The factor and the addend of batch norm; float [C].
struct BatchNormAffine {
  at::Tensor scale, shift, inverse_deviation;
};
BatchNormAffine affine_of(const BatchStatistics& statistics, const at::Tensor& weight,
    const at::Tensor& bias, double eps);

/// The start of the backward pass; `output` only if there was an addend.
struct BatchNormBackward {
  bool rectifies;
  const at::Tensor& gradient;
  const at::Tensor& weight;
  BatchNormAffine affine;
  const at::Tensor& mean;
  const at::Tensor& output;
};

struct BatchNormGradients {
  at::Tensor input, weight, bias, addend;
};

/// Runs the kernels over one layer's input, [N, C, H, W] in channels-last order, on all threads.
/// Sums are those of fixed parts of the rows, added in order: the number of threads changes no bit.
struct BatchNormPasses {
  const BatchNormKernel& kernel;
  const at::Tensor& input;

  BatchStatistics statistics() const;
  at::Tensor normalised(
      const BatchNormAffine& affine, const at::Tensor& addend, bool rectifies) const;
  BatchNormGradients gradients(const BatchNormBackward& given) const;

  /// Moves running statistics towards a batch's, the variance unbiased. Their versions stay, as
  /// LibTorch's do: a graph of an earlier call that saved them can still run backward.
  void update(const at::Tensor& running_mean, const at::Tensor& running_var,
      const BatchStatistics& statistics, double momentum) const;

 private:
  std::int64_t row_count() const { return input.numel() / input.size(1); }
  PixelRows rows() const;
};

}  // namespace lockstep::nn::fused
