#pragma once

#include <cstdint>
#include <string>

namespace lockstep::nn::conv {

/// A convolution as the choice sees it: what it multiplies, and whether Note [Winograd] covers it.
struct ConvolutionShape {
  std::int64_t images, inputs, outputs;
  std::int64_t out_height, out_width;
};

/// The widest vectors that ours uses.
enum class Isa { kPlain, kAvx2, kAvx512 };

/// The way oneDNN multiplies: floats, or bf16 by AMX's tiles, by AVX-512's own instructions, or by
/// converting to floats.
enum class Multiplier { kFloat, kAmx, kAvx512Bf16, kConverted };

/// Returns what oneDNN has for bf16 on a processor of these features
/// (lockstep/simd/processor.h).
Multiplier bf16_multiplier(const std::string& features);

/// Returns which of our tiles, 2 or 4 pixels wide, needs fewer products.
std::int64_t fitting_tile(const ConvolutionShape& shape);

/// Says whether our convolution is faster than oneDNN's, forward and backward together, by what
/// was measured on layers of 4 to 512 channels and 1 to 56 pixels (benchmarks/README.md).
///
/// The number of threads does not matter, so that a run can go on with another one: neither the
/// choice nor the results of our convolutions depend on it.
bool is_own_faster(const ConvolutionShape& shape, Isa isa, Multiplier theirs);

}  // namespace lockstep::nn::conv
