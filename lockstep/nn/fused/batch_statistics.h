#pragma once

// What a batch norm in training computes a channel; the passes over its values are in
// batch_norm_kernel.h.

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

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

/// The sums of a backward pass, over `count` values, and what they belong to.
struct BatchNormSums {
  const at::Tensor& weight;             ///< float [C]
  const at::Tensor& inverse_deviation;  ///< float [C]
  const at::Tensor& mean;               ///< double [C]
  const at::Tensor& rounded_mean;       ///< float [C], from which deviations were taken
  const at::Tensor&
      sums;  ///< double [2, C], of the passed gradients, and of these times deviations
  std::int64_t count;
};

/// The results of a backward pass's sums, float [C] each: the gradients of weight and bias, and
/// that of the input = passed * of_gradient + (input - mean) * of_input + constant.
struct OfSums {
  at::Tensor weight, bias, of_gradient, of_input, constant;
};

/// Return memory on the CPU, not set.
at::Tensor doubles(at::IntArrayRef sizes);
at::Tensor new_floats(std::int64_t channels);

/// Return where the values of a tensor in fp32 lie.
const float* floats(const at::Tensor& tensor);
float* to_floats(const at::Tensor& tensor);

/// Returns the pixels of a layer's values [N, C, H, W], channels-last.
PixelRows pixel_rows_of(const at::Tensor& input);

/// Two sums a channel of each part, [parts, 2, C]. The parts do not depend on the threads.
class PartialSums {
 public:
  PartialSums(const BatchNormKernel& kernel, std::int64_t rows, std::int64_t channels);

  using Body = c10::function_ref<void(Range, double*, double*, float*)>;

  void compute(Body body);

  /// Returns [2, C], added in order.
  at::Tensor total() const;

  std::int64_t parts() const { return parts_; }
  std::int64_t rows_of(std::int64_t part) const;
  const double* first(std::int64_t part) const {
    return memory_.const_data_ptr<double>() + part * 2 * channels_;
  }
  const double* second(std::int64_t part) const { return first(part) + channels_; }

 private:
  const BatchNormKernel& kernel_;
  std::int64_t rows_, channels_, parts_;
  at::Tensor memory_;
};

/// Returns those of a layer's values [N, C, H, W], channels-last.
BatchStatistics statistics_of(const BatchNormKernel& kernel, const at::Tensor& input);

BatchNormAffine affine_of(const BatchStatistics& statistics, const at::Tensor& weight,
    const at::Tensor& bias, double eps);

/// Moves running statistics, float [C], towards a batch's, the variance unbiased. Their versions
/// stay, as LibTorch's do: a graph of an earlier call that saved them can still run backward.
void update_running(const at::Tensor& running_mean, const at::Tensor& running_var,
    const BatchStatistics& statistics, double momentum);

OfSums of_sums(const BatchNormSums& given);

}  // namespace lockstep::nn::fused
