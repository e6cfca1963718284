#pragma once

#include <torch/types.h>

namespace lockstep {

/// Lets NVIDIA's GPUs round float32 to TF32 (10 bits of mantissa) in matrix products and in
/// convolutions, in the whole process; without a word LibTorch does so in convolutions alone.
void allow_tf32(bool matrix_products, bool convolutions);

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

/// Says whether a device multiplies matrices in bfloat16 faster than in float32: by doing it, which
/// takes some milliseconds. False where it cannot at all.
bool is_bf16_fast(torch::Device device);

}  // namespace lockstep
