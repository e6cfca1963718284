#include "lockstep/train/snapshot/row_order.h"

#include <cstring>
#include <vector>

namespace lockstep {
namespace {

struct Dimension {
  std::size_t size = 1;
  std::size_t stride = 0;  // in elements of the source
};

// Neighbours that one loop can walk become one: height and width of channels last do.
std::vector<Dimension> merged(
    std::span<const std::int64_t> shape, std::span<const std::int64_t> strides) {
  std::vector<Dimension> dimensions;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    const Dimension next{static_cast<std::size_t>(shape[i]), static_cast<std::size_t>(strides[i])};
    if (!dimensions.empty() && dimensions.back().stride == next.size * next.stride) {
      dimensions.back() = {dimensions.back().size * next.size, next.stride};
    } else {
      dimensions.push_back(next);
    }
  }
  return dimensions;
}

// The longer loop runs inside; a plane of a convolution's weight lies in the nearest cache, so the
// order in which it is written does not matter.
template <std::size_t kBytes>
void copy_plane(
    std::uint8_t*& to, const std::uint8_t* from, const Dimension& outer, const Dimension& inner) {
  const bool is_outer_longer = outer.size > inner.size;
  const Dimension &slow = is_outer_longer ? inner : outer, &fast = is_outer_longer ? outer : inner;
  const std::size_t slow_step = (is_outer_longer ? 1 : inner.size) * kBytes;
  const std::size_t fast_step = (is_outer_longer ? inner.size : 1) * kBytes;
  for (std::size_t i = 0; i < slow.size; ++i) {
    const std::uint8_t* source = from + i * slow.stride * kBytes;
    std::uint8_t* target = to + i * slow_step;
    for (std::size_t k = 0; k < fast.size; ++k) {
      std::memcpy(target, source, kBytes);
      target += fast_step;
      source += fast.stride * kBytes;
    }
  }
  to += outer.size * inner.size * kBytes;
}

template <std::size_t kBytes>
void copy_all(std::uint8_t*& to, const std::uint8_t* from, std::span<const Dimension> dimensions) {
  if (dimensions.size() == 2) {
    copy_plane<kBytes>(to, from, dimensions[0], dimensions[1]);
    return;
  }
  const Dimension& outermost = dimensions.front();
  for (std::size_t i = 0; i < outermost.size; ++i)
    copy_all<kBytes>(to, from + i * outermost.stride * kBytes, dimensions.subspan(1));
}

}  // namespace

void copy_row_major(std::span<std::uint8_t> to, std::span<const std::uint8_t> from,
    std::span<const std::int64_t> shape, std::span<const std::int64_t> strides,
    std::size_t element_bytes) {
  if (to.empty()) return;
  std::vector<Dimension> dimensions = merged(shape, strides);
  while (dimensions.size() < 2) dimensions.insert(dimensions.begin(), Dimension{});
  std::uint8_t* end = to.data();
  switch (element_bytes) {
    case 1:
      return copy_all<1>(end, from.data(), dimensions);
    case 2:
      return copy_all<2>(end, from.data(), dimensions);
    case 4:
      return copy_all<4>(end, from.data(), dimensions);
    case 8:
      return copy_all<8>(end, from.data(), dimensions);
    default:
      return copy_all<16>(end, from.data(), dimensions);
  }
}

}  // namespace lockstep
