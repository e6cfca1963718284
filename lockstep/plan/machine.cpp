#include "lockstep/plan/machine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/comm/hierarchy/chunks.h"
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

// A link's seconds for a message, without a latency where nothing is sent.
double rounds_on(const Link& link, double messages, double bytes) {
  if (messages <= 0) return 0;
  if (!link.measured.is_free()) return messages * link.measured(bytes / messages);
  return messages * link.latency + (link.bytes_per_second > 0 ? bytes / link.bytes_per_second : 0);
}

// Half of a ring's all-reduce: each rank has passed on all parts but one. The ring enters and
// leaves each node once, so a node's link carries what one rank sends; messages between nodes and
// within them are under way at once, and each waits for the slower.
double half_ring(double bytes, const Ranks& ranks, const Machine& machine) {
  const double messages = ranks.all() - 1;
  const double sent = bytes * messages / ranks.all();
  const double within = ranks.a_node > 1 ? rounds_on(machine.within, messages, sent) : 0;
  const double between = ranks.nodes > 1 ? rounds_on(machine.between, messages, sent) : 0;
  return std::max(within, between);
}

/// The time of an all-reduce, and how much of it a rank's core spends on it.
struct LevelsTime {
  double seconds = 0;
  double kept = 0;
};

/// A chunk on the link between the nodes; the core waits until it is there.
struct Arrival {
  double* core;
  double seconds;

  void wait() const { *core = std::max(*core, seconds); }
};

// Chunks as the runtime cuts them, through its stages: a core adds up a chunk within the node and
// spreads another one, while the link carries those of which it is the turn. The lanes of a chunk
// share the link; each lane's core moves its part, between what it does within the node. A chunk
// takes no less than its share of the whole message: a link that forwards a short burst faster
// does so once.
LevelsTime in_levels(double bytes, const Ranks& ranks, const Machine& machine) {
  constexpr double kElement = 4;
  const Ranks inside{1, ranks.a_node}, across{ranks.nodes, 1};
  const auto elements = static_cast<std::int64_t>(std::ceil(bytes / kElement));
  const int lanes = hierarchy::lanes_for(static_cast<std::int64_t>(bytes), ranks.a_node);
  const auto chunks =
      hierarchy::cut_into_chunks(elements, static_cast<std::size_t>(kElement), lanes);
  const double a_byte = half_ring(bytes, across, machine) / bytes;
  LevelsTime time;
  double link = 0;
  const auto size_of = [&](std::size_t chunk) {
    return bytes * static_cast<double>(chunks[chunk].count) / static_cast<double>(elements);
  };
  const auto within = [&](std::size_t chunk) {
    const double seconds = half_ring(size_of(chunk), inside, machine);
    time.seconds += seconds;
    time.kept += seconds * machine.within.core_share;
  };
  const auto between = [&](std::size_t chunk) {
    const double size = size_of(chunk);
    const double seconds = 2 * std::max(half_ring(size, across, machine), a_byte * size);
    link = std::max(link, time.seconds) + seconds;
    const double driving = seconds * machine.between.core_share / lanes;
    time.seconds += driving;
    time.kept += driving;
    return Arrival{&time.seconds, link};
  };
  hierarchy::in_stages(chunks.size(), within, between, within);
  return time;
}

}  // namespace

Link parse_link(const std::string& text, double usual_latency) {
  Link link{.latency = usual_latency};
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
  for (const double value :
      {machine.memory_bytes, machine.price, machine.place_price, machine.jitter}) {
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

double all_reduce_seconds(
    double bytes, const Ranks& ranks, const Machine& machine, AllReduce algorithm) {
  if (ranks.all() <= 1) return 0;
  return algorithm == AllReduce::kRing ? 2 * half_ring(bytes, ranks, machine)
                                       : in_levels(bytes, ranks, machine).seconds;
}

double all_gather_seconds(double bytes, const Ranks& ranks, const Machine& machine) {
  return ranks.all() <= 1 ? 0 : half_ring(bytes, ranks, machine);
}

AllReduce usual_all_reduce(const Ranks& ranks, const Machine& machine) {
  const bool has_levels = ranks.nodes > 1 && ranks.a_node > 1 && machine.within.core_share > 0;
  return has_levels ? AllReduce::kHierarchical : AllReduce::kRing;
}

double core_share(double bytes, const Ranks& ranks, const Machine& machine, AllReduce algorithm) {
  if (algorithm != AllReduce::kHierarchical || ranks.all() <= 1) return core_share(ranks, machine);
  const LevelsTime time = in_levels(bytes, ranks, machine);
  return time.seconds > 0 ? std::min(1.0, time.kept / time.seconds) : 0;
}

double core_share(const Ranks& ranks, const Machine& machine) {
  if (ranks.all() <= 1) return 0;
  return ranks.nodes > 1 ? machine.between.core_share : machine.within.core_share;
}

}  // namespace lockstep::plan
