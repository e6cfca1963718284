#pragma once

// Kernels include it: see Note [Kernels per instruction set].

#include <cstdint>

#include "lockstep/nn/kernel_types.h"

namespace lockstep::nn::fused {

/// The values of a layer, NHWC: a row for each pixel of each image, a column for each channel.
/// Arrays of a value a channel, below, have this many.
struct PixelRows {
  Element element;
  std::int64_t channels;
};

/// Mean and sum of squared deviations from it, for each channel.
struct Moments {
  double* mean;
  double* squares;
};

/// The function behind a batch norm.
enum class Activation { kNone, kRelu, kSilu, kHardswish };

/// outputs = activation(inputs * scale + shift [+ addends])
struct NormaliseJob {
  PixelRows rows;
  const void* inputs;
  const void* addends;  ///< or none; with them it is ReLU
  Activation activation;
  const float *scale, *shift;
  void* outputs;
};

/// The values that the activation saw are computed again from the inputs. If there were addends,
/// the outputs tell what ReLU let pass; what passes is then written too, for it is the addends'
/// gradient. It may be written without addends, where it costs more to compute it again.
struct ReduceJob {
  PixelRows rows;
  Activation activation;
  const void *inputs, *gradients;
  const void* outputs;  ///< if there were addends, else none
  const float *scale, *shift, *mean;
  void* passed;  ///< if there were addends, else it may be none
};

/// The sums, for each channel, of the gradients behind the activation, and of these times the
/// deviation of their inputs from the mean.
struct GradientSums {
  double* gradients;
  double* products;
};

/// input_gradients = passed * of_gradient + (inputs - mean) * of_input + constant
struct InputGradientJob {
  PixelRows rows;
  const void *inputs, *gradients;
  Activation activation;       ///< that the gradients have still to pass
  const float *scale, *shift;  ///< of the outputs
  const float *mean, *of_gradient, *of_input, *constant;
  void* input_gradients;
};

/// One build of the loops. `scratch` has scratch_floats(channels) floats.
struct BatchNormKernel {
  const char* name;
  std::int64_t (*scratch_floats)(std::int64_t channels);
  void (*collect)(const PixelRows& rows, const void* inputs, Range range, const Moments& moments,
      float* scratch);
  void (*normalise)(const NormaliseJob& job, Range range);
  void (*reduce)(const ReduceJob& job, Range range, const GradientSums& sums, float* scratch);
  void (*differentiate)(const InputGradientJob& job, Range range);
};

const BatchNormKernel& batch_norm_plain();
const BatchNormKernel& batch_norm_avx2();
const BatchNormKernel& batch_norm_avx512();

}  // namespace lockstep::nn::fused
