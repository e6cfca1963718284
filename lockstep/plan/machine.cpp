#include "lockstep/plan/machine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::plan {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};
constexpr std::array kRates{Unit{"kbit", 1e3 / 8}, Unit{"Mbit", 1e6 / 8}, Unit{"Gbit", 1e9 / 8},
    Unit{"MB", 1e6}, Unit{"GB", 1e9}};
constexpr std::array kTimes{Unit{"us", 1e-6}, Unit{"ms", 1e-3}, Unit{"s", 1.0}};

template <std::size_t Count>
std::optional<double> amount_of(const std::string& text, const std::array<Unit, Count>& units) {
  for (const Unit& unit : units) {
    if (!text.ends_with(unit.name)) continue;
    const auto number = parse_number<double>(text.substr(0, text.size() - unit.name.size()));
    if (number && *number >= 0) return *number * unit.factor;
  }
  return std::nullopt;
}

[[noreturn]] void refuse_link(const std::string& text) {
  throw InvalidArgument(concat(
      "plan: a link is a rate and a latency, as 25Gbit,50us or 12GB,5us: ", printable(text)));
}

void check_link(const Link& link) {
  for (const double value : {link.latency, link.bytes_per_second, link.core_share}) {
    check(value >= 0 && std::isfinite(value), "plan: a link's numbers are 0 or more: ", value);
  }
  check(link.core_share <= 1, "plan: a link takes at most the whole core: ", link.core_share);
}

}  // namespace

double Link::seconds(double bytes) const {
  if (!measured.is_free()) return measured(bytes);
  return latency + (bytes_per_second > 0 ? bytes / bytes_per_second : 0);
}

Link parse_link(const std::string& text) {
  Link link;
  bool has_rate = false, has_latency = false;
  for (const std::string& part : split(text, ',')) {
    const auto rate = amount_of(part, kRates);
    const auto latency = rate ? std::nullopt : amount_of(part, kTimes);
    if ((rate && (has_rate || *rate == 0)) || (latency && has_latency) || (!rate && !latency))
      refuse_link(text);
    if (rate) link.bytes_per_second = *rate;
    if (latency) link.latency = *latency;
    has_rate = has_rate || rate.has_value();
    has_latency = has_latency || latency.has_value();
  }
  if (!has_rate) refuse_link(text);
  return link;
}

Link with_latency(Link link, double seconds) {
  std::vector<CostCurve::Point> points = link.measured.points();
  for (CostCurve::Point& point : points)
    point.seconds = std::max(0.0, point.seconds + seconds - link.latency);
  link.measured = CostCurve(std::move(points));
  link.latency = seconds;
  return link;
}

std::string text_of(const Link& link) {
  const double bits = 8 * link.bytes_per_second;
  const auto three_digits = [](double value) { return std::round(value * 1e3) / 1e3; };
  const std::string rate = bits >= 1e9 ? concat(three_digits(bits / 1e9), "Gbit")
                                       : concat(three_digits(bits / 1e6), "Mbit");
  const char* const source = link.measured.is_free() ? "" : ", measured";
  return concat(rate, ",", three_digits(link.latency * 1e6), "us", source);
}

void check_machine(const Machine& machine) {
  check(machine.nodes >= 1 && machine.places >= 1,
      "plan: at least one place is needed: ", machine.nodes, " nodes of ", machine.places);
  check(machine.places <= kMostPlaces / machine.nodes, "plan: ", machine.nodes, " nodes of ",
      machine.places, " places are more than ", kMostPlaces, " places together");
  check_link(machine.within);
  check_link(machine.between);
  for (const double value : {machine.memory_bytes, machine.price, machine.jitter}) {
    check(value >= 0 && std::isfinite(value), "plan: a machine's numbers are 0 or more: ", value);
  }
}

double slowest_of(int places, double jitter) {
  if (places <= 1 || jitter == 0) return 1;
  // The quantile (n - 0.375) / (n + 0.25) of the normal distribution, by Abramowitz and
  // Stegun 26.2.23.
  const double above = 0.625 / (places + 0.25);
  const double t = std::sqrt(-2 * std::log(above));
  const double numerator = 2.515517 + t * (0.802853 + t * 0.010328);
  const double denominator = 1 + t * (1.432788 + t * (0.189269 + t * 0.001308));
  return 1 + jitter * std::max(0.0, t - numerator / denominator);
}

}  // namespace lockstep::plan
