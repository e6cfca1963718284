#pragma once

// Kernels include it: see Note [Kernels per instruction set].

#include "lockstep/nn/fused/batch_norm_kernel.h"

namespace lockstep::nn::fused {

/// A layer's values in fp32, NHWC. Arrays of a value a channel, below, have `channels`; those of a
/// value an image and channel have a row for each image.
struct ExcitedLayer {
  std::int64_t pixels, channels;  ///< of an image
};

/// values = activation(inputs * scale + shift), and their means, of each image and channel.
struct SqueezeJob {
  ExcitedLayer layer;
  Activation activation;
  const float *inputs, *scale, *shift;
  float *values, *means;
};

/// values *= gates, of the image and channel.
struct ExciteJob {
  ExcitedLayer layer;
  const float* gates;
  float* values;
};

/// For each image and channel, sums over the pixels of what is named, where the slope is the
/// activation's derivative and a deviation is an input's from the mean.
struct ExcitationSums {
  float* values;           ///< gradient * value
  float* passed;           ///< gradient * slope
  float* passed_products;  ///< gradient * slope * deviation
  float* slopes;           ///< slope
  float* slope_products;   ///< slope * deviation
};

/// The sums, and the slope of each value.
struct ExciteReduceJob {
  ExcitedLayer layer;
  Activation activation;
  const float *inputs, *scale, *shift, *mean;
  const float* gradients;
  float* slopes;
  ExcitationSums sums;
};

/// Writes over each slope the gradient of the input:
/// passed * of_gradient + (input - mean) * of_input + constant, where
/// passed = slope * (gradient * gate + share), with gate and share of the image and channel.
struct ExciteGradientJob {
  ExcitedLayer layer;
  const float *inputs, *mean;
  const float *gradients, *gates, *shares;
  const float *of_gradient, *of_input, *constant;
  float* slopes;
};

/// One build of the loops, each over some images.
struct SqueezeExciteKernel {
  const char* name;
  void (*squeeze)(const SqueezeJob& job, Range images);
  void (*excite)(const ExciteJob& job, Range images);
  void (*reduce)(const ExciteReduceJob& job, Range images);
  void (*differentiate)(const ExciteGradientJob& job, Range images);
};

const SqueezeExciteKernel& squeeze_excite_plain();
const SqueezeExciteKernel& squeeze_excite_avx2();
const SqueezeExciteKernel& squeeze_excite_avx512();

}  // namespace lockstep::nn::fused
