#include "lockstep/nn/conv/choice.h"

#include <algorithm>

#include "lockstep/simd/processor.h"

namespace lockstep::nn::conv {
namespace {

std::int64_t tiles_of(const ConvolutionShape& shape, std::int64_t tile) {
  const auto along = [=](std::int64_t pixels) { return (pixels + tile - 1) / tile; };
  return shape.images * along(shape.out_height) * along(shape.out_width);
}

}  // namespace

std::int64_t fitting_tile(const ConvolutionShape& shape) {
  constexpr std::int64_t kSmallProducts = 16, kLargeProducts = 36;
  const bool is_small = tiles_of(shape, 2) * kSmallProducts < tiles_of(shape, 4) * kLargeProducts;
  return is_small ? 2 : 4;
}

Multiplier bf16_multiplier(const std::string& features) {
  if (has_feature(features, "amx_bf16")) return Multiplier::kAmx;
  const bool has_bf16 = has_feature(features, "avx512_bf16");
  return has_bf16 ? Multiplier::kAvx512Bf16 : Multiplier::kConverted;
}

bool is_own_faster(const ConvolutionShape& shape, Isa isa, Multiplier theirs) {
  // AMX multiplies sixteen times as fast as ours, which needs a quarter of the products.
  if (isa == Isa::kPlain || theirs == Multiplier::kAmx) return false;
  const bool is_twice_as_fast = theirs == Multiplier::kAvx512Bf16;
  if (is_twice_as_fast && fitting_tile(shape) == 2) return false;
  // With fewer channels the transforms cost more than the products that they save.
  constexpr std::int64_t kFewestChannels = 24;
  if (std::min(shape.inputs, shape.outputs) < kFewestChannels) return false;
  // With fewer tiles, transforming the weights does.
  const std::int64_t fewest_tiles = is_twice_as_fast ? 128 : 16;
  if (tiles_of(shape, fitting_tile(shape)) < fewest_tiles) return false;
  // Of one pixel oneDNN computes only the middle tap.
  return shape.out_height > 1 && shape.out_width > 1;
}

}  // namespace lockstep::nn::conv
