#include "lockstep/report/plot/ticks.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <limits>

namespace lockstep::plot {
namespace {

// Tolerance for rounding errors at the ends of a range, in steps.
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

constexpr const char* kMinus = "\u2212";
constexpr const char* kTimes = "\u00d7";
constexpr std::array kSuperscripts{"\u2070", "\u00b9", "\u00b2", "\u00b3", "\u2074", "\u2075",
    "\u2076", "\u2077", "\u2078", "\u2079"};
constexpr double kMostPlain = 1e6;
constexpr double kLeastPlain = 1e-3;
constexpr int kMostDigits = 15;

// Independent of the locale, other than printf. Values here are below 1e16 or have an exponent
// apart.
std::string digits_of(double value, int digits) {
  std::array<char, 64> text;
  const auto end = std::to_chars(
      text.data(), text.data() + text.size(), value, std::chars_format::fixed, digits);
  return {text.data(), end.ptr};
}

std::string with_commas(std::string text) {
  const std::size_t point = std::min(text.find('.'), text.size());
  for (std::size_t place = point; place > 3;) {
    place -= 3;
    text.insert(place, 1, ',');
  }
  return text;
}

std::string signed_text(double value, int digits) {
  const std::string text = with_commas(digits_of(std::abs(value), digits));
  const bool is_zero = text.find_first_not_of("0.,") == std::string::npos;
  return value < 0 && !is_zero ? kMinus + text : text;
}

std::string raised(int exponent) {
  std::string text = exponent < 0 ? "\u207b" : "";
  for (const char digit : std::to_string(std::abs(exponent))) {
    text += kSuperscripts[static_cast<std::size_t>(digit - '0')];
  }
  return text;
}

int exponent_of(double value) { return static_cast<int>(std::floor(std::log10(std::abs(value)))); }

// In two steps, for ten to the minus 310th is no number.
double without_power(double value, int exponent) {
  return exponent < 0 ? value * std::pow(10.0, -exponent) : value / std::pow(10.0, exponent);
}

std::string with_power(double value, int exponent, int digits) {
  if (value == 0) return "0";
  return signed_text(without_power(value, exponent), digits) + kTimes + "10" + raised(exponent);
}

double least_gap(const std::vector<double>& ticks) {
  double gap = std::numeric_limits<double>::infinity();
  for (std::size_t i = 1; i < ticks.size(); ++i) {
    gap = std::min(gap, std::abs(ticks[i] - ticks[i - 1]));
  }
  return gap;
}

// So many digits that no tick is further from its text than a thousandth of the least gap.
int digits_needed(const std::vector<double>& ticks, double gap) {
  for (int digits = 0; digits < kMostDigits; ++digits) {
    const double power = std::pow(10.0, digits);
    const bool enough = std::all_of(ticks.begin(), ticks.end(), [&](double tick) {
      return std::abs(std::round(tick * power) / power - tick) <= gap / 1000;
    });
    if (enough) return digits;
  }
  return kMostDigits;
}

double largest_of(const std::vector<double>& ticks) {
  double largest = 0;
  for (const double tick : ticks) largest = std::max(largest, std::abs(tick));
  return largest;
}

// On a logarithmic axis each tick has digits of its own, but all have powers if one needs them.
std::vector<std::string> logarithmic_texts(const std::vector<double>& ticks) {
  const bool plain = std::all_of(ticks.begin(), ticks.end(),
      [](double tick) { return tick >= kLeastPlain && tick < kMostPlain; });
  std::vector<std::string> texts;
  for (const double tick : ticks) {
    const int exponent = exponent_of(tick * (1 + 1e-12));
    const double mantissa = without_power(tick, exponent);
    if (plain) {
      texts.push_back(signed_text(tick, digits_needed({tick}, tick)));
    } else if (std::abs(mantissa - 1) < 1e-3) {
      texts.push_back("10" + raised(exponent));
    } else {
      texts.push_back(with_power(tick, exponent, digits_needed({mantissa}, mantissa)));
    }
  }
  return texts;
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

std::vector<std::string> tick_texts(const std::vector<double>& ticks, bool logarithmic) {
  if (logarithmic) return logarithmic_texts(ticks);
  const double largest = largest_of(ticks);
  std::vector<std::string> texts;
  if (largest == 0) return std::vector<std::string>(ticks.size(), "0");
  const int exponent = exponent_of(largest * (1 + 1e-12));
  const bool plain = largest >= kLeastPlain && largest < kMostPlain;
  std::vector<double> shown = ticks;
  for (double& tick : shown) tick = plain ? tick : without_power(tick, exponent);
  const double gap = std::min(least_gap(shown), largest_of(shown));
  const int digits = digits_needed(shown, gap);
  for (std::size_t i = 0; i < ticks.size(); ++i) {
    texts.push_back(plain ? signed_text(ticks[i], digits) : with_power(ticks[i], exponent, digits));
  }
  return texts;
}

std::vector<std::string> byte_texts(const std::vector<double>& ticks) {
  static constexpr std::array kUnits{" B", " KiB", " MiB", " GiB", " TiB", " PiB"};
  std::vector<std::string> texts;
  for (double tick : ticks) {
    std::size_t unit = 0;
    for (; std::abs(tick) >= 1024 && unit + 1 < kUnits.size(); ++unit) tick /= 1024;
    texts.push_back(tick == 0 ? "0" : value_text(tick) + kUnits[unit]);
  }
  return texts;
}

std::string value_text(double value) {
  if (value == 0) return "0";
  // Rounded to four digits first: 999.96 has an exponent of three.
  std::array<char, 64> text;
  const auto end = std::to_chars(
      text.data(), text.data() + text.size(), value, std::chars_format::scientific, 3);
  double rounded = 0;
  std::from_chars(text.data(), end.ptr, rounded);
  const int exponent = exponent_of(rounded * (1 + 1e-12));
  const double size = std::abs(rounded);
  if (size >= kMostPlain || size < kLeastPlain) {
    const double mantissa = without_power(rounded, exponent);
    return with_power(rounded, exponent, digits_needed({mantissa}, std::abs(mantissa)));
  }
  return signed_text(exponent > 3 ? value : rounded, digits_needed({rounded}, size / 10));
}

std::string coordinate(double pixels) {
  const double rounded = std::round(pixels * 100) / 100 + 0.0;  // no negative zero
  std::array<char, 64> text;
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), rounded, std::chars_format::fixed, 2);
  std::string digits(text.data(), end.ptr);
  digits.erase(digits.find_last_not_of('0') + 1);
  if (digits.back() == '.') digits.pop_back();
  return digits;
}

}  // namespace lockstep::plot
