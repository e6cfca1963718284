#include "lockstep/nn/conv/choice.h"

#include <algorithm>

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

bool is_own_faster(const ConvolutionShape& shape, Isa isa) {
  if (isa == Isa::kPlain) return false;
  // With fewer channels the transforms cost more than the products that they save.
  constexpr std::int64_t kFewestChannels = 24;
  if (std::min(shape.inputs, shape.outputs) < kFewestChannels) return false;
  // With fewer tiles, transforming the weights does.
  constexpr std::int64_t kFewestTiles = 16;
  if (tiles_of(shape, fitting_tile(shape)) < kFewestTiles) return false;
  // Of one pixel oneDNN computes only the middle tap.
  return shape.out_height > 1 && shape.out_width > 1;
}

}  // namespace lockstep::nn::conv
