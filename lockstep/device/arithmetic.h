#pragma once

#include <torch/types.h>

namespace lockstep {

/// Lets NVIDIA's GPUs round float32 to TF32 (10 bits of mantissa) in matrix products and in
/// convolutions, in the whole process; without a word LibTorch does so in convolutions alone.
void allow_tf32(bool matrix_products, bool convolutions);

/// Lets cuDNN time its kernels for each new shape of a convolution and keep the fastest, in the
/// whole process. Which one that is may change from run to run, and with it the rounding.
void time_convolutions();

/// Lets NVIDIA's GPUs compute float32 as such for as long as it lives: TF32 has a tenth of its
/// digits.
class ExactFloat32 {
 public:
  ExactFloat32();
  ~ExactFloat32();
  ExactFloat32(const ExactFloat32&) = delete;
  ExactFloat32& operator=(const ExactFloat32&) = delete;

 private:
  bool products_, convolutions_;
};

/// Returns how many operations a second products of large matrices make on a device, by doing them:
/// the best of several, on the calling thread's cores.
double product_flops_per_second(torch::Device device, torch::ScalarType type);

/// The same of 3x3 convolutions of channels-last images, in training: forward and both gradients.
double convolution_flops_per_second(torch::Device device, torch::ScalarType type);

/// Measures in some milliseconds how fast a device multiplies matrices in bfloat16, float32's speed
/// being 1. 0 where it cannot at all, and on a processor that would emulate it, which takes a third
/// of a second to show. LOCKSTEP_TEST_BF16_SPEED, if it is set, is the answer.
double bf16_speed(torch::Device device);

}  // namespace lockstep
