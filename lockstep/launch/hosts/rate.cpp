#include "lockstep/launch/hosts/rate.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "lockstep/core/error.h"

namespace lockstep::launch {
namespace {

constexpr double kLeast = 64e3;
constexpr double kMost = 1000e9;

const std::map<std::string, double> kUnits{{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}};

}  // namespace

std::int64_t parse_rate(const std::string& text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  const auto unit = kUnits.find(std::string(stop, end));
  check(
      error == std::errc() && unit != kUnits.end(),
      "hosts: --rate must be a number and kbit, mbit or gbit, as 1gbit: ", text);
  const double bits = number * unit->second;
  check(bits >= kLeast && bits <= kMost, "hosts: --rate must be 64kbit to 1000gbit: ", text);
  return static_cast<std::int64_t>(bits);
}

std::int64_t burst_bytes(std::int64_t bits_per_second) {
  constexpr std::int64_t kLeastBurst = 16 * 1024;  // some packets of the usual size
  return std::max(kLeastBurst, bits_per_second / 8 / 500);
}

}  // namespace lockstep::launch
