#include "lockstep/plan/collective_time.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "lockstep/comm/hierarchy/chunks.h"

namespace lockstep::plan {
namespace {

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

double tree(double bytes, const Ranks& ranks, const Machine& machine) {
  const auto depth = [](int count) { return std::ceil(std::log2(count)); };
  const double within = 2 * depth(ranks.a_node);
  const double between = 2 * depth(ranks.nodes);
  return rounds_on(machine.within, within, within > 0 ? 2 * bytes : 0) +
         rounds_on(machine.between, between, between > 0 ? 2 * bytes : 0);
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

double all_reduce_seconds(
    double bytes, const Ranks& ranks, const Machine& machine, AllReduce algorithm) {
  if (ranks.all() <= 1) return 0;
  switch (algorithm) {
    case AllReduce::kRing:
      return 2 * half_ring(bytes, ranks, machine);
    case AllReduce::kTree:
      return tree(bytes, ranks, machine);
    case AllReduce::kHierarchical:
      return in_levels(bytes, ranks, machine).seconds;
  }
  return 0;
}

double all_gather_seconds(double bytes, const Ranks& ranks, const Machine& machine) {
  return ranks.all() <= 1 ? 0 : half_ring(bytes, ranks, machine);
}

double reduce_scatter_seconds(double bytes, const Ranks& ranks, const Machine& machine) {
  return all_gather_seconds(bytes, ranks, machine);
}

AllReduce fastest_all_reduce(double bytes, const Ranks& ranks, const Machine& machine) {
  AllReduce best = AllReduce::kRing;
  for (const AllReduce each : std::array{AllReduce::kTree, AllReduce::kHierarchical}) {
    if (all_reduce_seconds(bytes, ranks, machine, each) <
        all_reduce_seconds(bytes, ranks, machine, best))
      best = each;
  }
  return best;
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
