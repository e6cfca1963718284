#include "lockstep/train/input/sheet_numbers.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

namespace lockstep {
namespace {

constexpr std::size_t kFirstNumbers = 8;

}  // namespace

bool is_pictured(const std::vector<std::int64_t>& shape) {
  return shape.size() == 3 && (shape[0] == 1 || shape[0] == 3) && shape[1] > 1 && shape[2] > 1;
}

SheetNumbers numbers_of_sample(
    std::span<const double> numbers, const std::vector<std::int64_t>& shape) {
  SheetNumbers seen{.shape = shape};
  const std::size_t shown = std::min(numbers.size(), kFirstNumbers);
  seen.first.assign(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(shown));
  seen.mean =
      std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size());
  if (std::ranges::any_of(numbers, [](double number) { return std::isnan(number); })) {
    seen.least = seen.mean = seen.most = std::numeric_limits<double>::quiet_NaN();
  } else {
    const auto [least, most] = std::ranges::minmax(numbers);
    seen.least = least;
    seen.most = most;
  }
  return seen;
}

// A hair beyond black and white is rounding.
bool spread_beyond_pixels(std::span<float> numbers) {
  constexpr float kHair = 1e-3F;
  const auto [least, most] = std::ranges::minmax(numbers);
  if (least >= -kHair && most <= 1 + kHair) return false;
  const float width = most > least ? most - least : 1;
  for (float& number : numbers) number = (number - least) / width;
  return true;
}

}  // namespace lockstep
