#include <algorithm>
#include <cmath>

#include "lockstep/data/transforms/ops/resample_kernel.h"

namespace lockstep::data {
namespace {

constexpr int kWeightBits = 22;
constexpr int kLowerBits = 11;

double triangle(double x) { return std::max(0., 1 - std::abs(x)); }

// Keys' cubic convolution with a = -0.5.
double cubic(double x) {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * kA : 0;
}

std::int32_t fixed(double weight) {
  const double scaled = weight * (1 << kWeightBits);
  return static_cast<std::int32_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
}

std::uint32_t packed(std::int32_t first, std::int32_t second) {
  return static_cast<std::uint32_t>(first & 0xFFFF) | static_cast<std::uint32_t>(second) << 16;
}

// Where an axis is looked at from: the input under one output position.
struct Window {
  double center;
  double support;

  // Ends move to the nearest middle of a pixel; towards 0 below 0, which is cut off anyway.
  TapRange range(std::int64_t input) const {
    constexpr double kHalf = 0.5;
    const auto start = std::max(static_cast<std::int32_t>(center - support + kHalf), 0);
    const auto end = static_cast<std::int64_t>(center + support + kHalf);
    return {start, static_cast<std::int32_t>(std::min(end, input)) - start};
  }
};

class TapWriter {
 public:
  TapWriter(ResampleTaps& taps, Interpolation interpolation, double scale)
      : taps_(taps),
        filter_(interpolation == Interpolation::kBicubic ? cubic : triangle),
        inverse_scale_(1 / scale) {}

  void write(std::size_t position, double center) {
    const TapRange range = taps_.ranges[position];
    weights_.assign(static_cast<std::size_t>(2 * taps_.stride), 0);
    double sum = 0;
    for (std::int32_t i = 0; i < range.count; ++i) {
      const double weight = filter_((i + range.start - center + 0.5) * inverse_scale_);
      weights_[static_cast<std::size_t>(i)] = weight;
      sum += weight;
    }
    for (double& weight : weights_) weight = sum == 0 ? weight : weight / sum;
    pack(position);
  }

 private:
  void pack(std::size_t position) {
    const auto pairs = static_cast<std::size_t>(taps_.stride);
    for (std::size_t pair = 0; pair < pairs; ++pair) {
      const std::int32_t first = fixed(weights_[2 * pair]);
      const std::int32_t second = fixed(weights_[2 * pair + 1]);
      constexpr std::int32_t kLowerMask = (1 << kLowerBits) - 1;
      taps_.upper[position * pairs + pair] = packed(first >> kLowerBits, second >> kLowerBits);
      taps_.lower[position * pairs + pair] = packed(first & kLowerMask, second & kLowerMask);
    }
  }

  ResampleTaps& taps_;
  double (*filter_)(double);
  double inverse_scale_;
  std::vector<double> weights_;
};

}  // namespace

ResampleTaps resample_taps(const ResampleAxis& axis, Interpolation interpolation) {
  const double step = static_cast<double>(axis.input) / static_cast<double>(axis.output);
  const double scale = std::max(step, 1.);
  const double support = (interpolation == Interpolation::kBicubic ? 2. : 1.) * scale;
  const auto positions = static_cast<std::size_t>(axis.count);
  // At most ceil(support) * 2 + 1 taps; a pair more would be a pair of zeros.
  ResampleTaps taps{.stride = static_cast<std::int64_t>(std::ceil(support)) + 1};
  taps.ranges.resize(positions);
  taps.upper.resize(positions * static_cast<std::size_t>(taps.stride));
  taps.lower.resize(taps.upper.size());
  TapWriter writer(taps, interpolation, scale);
  for (std::size_t i = 0; i < positions; ++i) {
    const double center = (static_cast<double>(axis.first) + static_cast<double>(i) + 0.5) * step;
    taps.ranges[i] = Window{center, support}.range(axis.input);
    writer.write(i, center);
  }
  return taps;
}

void reverse(ResampleTaps& taps) {
  std::reverse(taps.ranges.begin(), taps.ranges.end());
  for (auto* pairs : {&taps.upper, &taps.lower}) {
    for (std::size_t low = 0, high = taps.ranges.size() - 1; low < high; ++low, --high) {
      const auto at = [&](std::size_t position) {
        return pairs->begin() + static_cast<std::ptrdiff_t>(position) * taps.stride;
      };
      std::swap_ranges(at(low), at(low + 1), at(high));
    }
  }
}

}  // namespace lockstep::data
