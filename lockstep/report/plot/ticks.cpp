#include "lockstep/report/plot/ticks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace lockstep::bench::plot {
namespace {

// What arithmetic may leave of a step at its ends.
constexpr double kSlack = 1e-9;

constexpr std::array kMantissas{1, 2, 5};

struct Nice {
  int mantissa;
  int exponent;

  double value() const { return times(1); }

  // Divided by a power of ten that is exact, 3 steps of 0.1 are 0.3.
  double times(double count) const {
    return exponent < 0 ? count * mantissa / std::pow(10.0, -exponent)
                        : count * mantissa * std::pow(10.0, exponent);
  }
};

Nice nice_number(double span, int most) {
  const double raw = span / most;
  const int exponent = static_cast<int>(std::floor(std::log10(raw)));
  for (const int mantissa : kMantissas) {
    const Nice nice{mantissa, exponent};
    if (nice.value() >= raw * (1 - kSlack)) return nice;
  }
  return {1, exponent + 1};
}

std::vector<double> powers(Range range, double base, int every) {
  const double low = std::log(range.low) / std::log(base) / every;
  const double high = std::log(range.high) / std::log(base) / every;
  std::vector<double> ticks;
  for (double power = std::ceil(low - kSlack); power <= high + kSlack; ++power) {
    ticks.push_back(std::pow(base, power * every));
  }
  return ticks;
}

std::vector<double> one_two_five(Range range) {
  std::vector<double> ticks;
  const int last = static_cast<int>(std::floor(std::log10(range.high) + kSlack));
  for (int exponent = static_cast<int>(std::floor(std::log10(range.low))); exponent <= last;
       ++exponent) {
    for (const int mantissa : kMantissas) {
      const double tick = Nice{mantissa, exponent}.value();
      if (tick >= range.low * (1 - kSlack) && tick <= range.high * (1 + kSlack)) {
        ticks.push_back(tick);
      }
    }
  }
  return ticks;
}

double byte_unit(double high) {
  double unit = 1;
  while (unit * 1024 <= high) unit *= 1024;
  return unit;
}

bool fits(const std::vector<double>& ticks, int most) {
  return ticks.size() <= static_cast<std::size_t>(most);
}

}  // namespace

std::vector<double> linear_ticks(Range range, int most) {
  const Nice step = nice_number(range.high - range.low, most);
  const double last = std::floor(range.high / step.value() + kSlack);
  std::vector<double> ticks;
  for (double count = std::ceil(range.low / step.value() - kSlack); count <= last; ++count) {
    ticks.push_back(step.times(count) + 0.0);  // no negative zero
  }
  return ticks;
}

std::vector<double> logarithmic_ticks(Range range, int most) {
  std::vector<double> ticks = one_two_five(range);
  for (int every = 1; !fits(ticks, most); ++every) ticks = powers(range, 10, every);
  return ticks;
}

std::vector<double> logarithmic_byte_ticks(Range range, int most) {
  std::vector<double> ticks;
  for (const int every : {1, 2, 5, 10, 20, 50, 100, 200}) {
    ticks = powers(range, 2, every);
    if (fits(ticks, most)) break;
  }
  return ticks;
}

std::vector<double> linear_byte_ticks(Range range, int most) {
  const double unit = byte_unit(range.high);
  std::vector<double> ticks = linear_ticks({range.low / unit, range.high / unit}, most);
  for (double& tick : ticks) tick *= unit;
  return ticks;
}

Range nice_range(Range range, int most) {
  const Nice step = nice_number(range.high - range.low, most);
  // Half a step will do at the ends: a value just above a tick must not leave a step empty.
  const auto half_steps = [&](double value) { return 2 * value / step.value(); };
  return {step.times(std::floor(half_steps(range.low) + kSlack) / 2) + 0.0,
      step.times(std::ceil(half_steps(range.high) - kSlack) / 2) + 0.0};
}

Range nice_byte_range(Range range, int most) {
  const double unit = byte_unit(range.high);
  const Range nice = nice_range({range.low / unit, range.high / unit}, most);
  const Range widened{nice.low * unit, nice.high * unit};
  // At most once more: what was widened to 1200 KiB is counted in MiB.
  return byte_unit(widened.high) == unit ? widened : nice_byte_range(widened, most);
}

Range nice_logarithmic_byte_range(Range range) {
  const double low = std::floor(std::log2(range.low) + kSlack);
  const double high = std::ceil(std::log2(range.high) - kSlack);
  return {std::exp2(low), std::exp2(std::max(high, low + 1))};
}

Range nice_logarithmic_range(Range range) {
  const std::vector<double> around = one_two_five({range.low / 10, range.high * 10});
  Range nice;
  for (const double tick : around) {
    if (tick <= range.low * (1 + kSlack)) nice.low = tick;
  }
  const double enough = std::max(range.high * (1 - kSlack), nice.low * 2 * (1 - kSlack));
  nice.high = *std::lower_bound(around.begin(), around.end(), enough);
  return nice;
}

}  // namespace lockstep::bench::plot
