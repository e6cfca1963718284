#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/plan/replica_step.h"

namespace lockstep::plan {
namespace {

// By messages of several groups at once: they take as long as one message of all their bytes.
Link shared(Link link, double by) {
  link.bytes_per_second /= by;
  link.core_share /= by;
  std::vector<CostCurve::Point> points = link.measured.points();
  for (CostCurve::Point& point : points) point.batch /= by;
  link.measured = CostCurve(std::move(points));
  return link;
}

// Of a core that moves the bytes: no faster than it can beside computing, and it does nothing else.
Link driven_by_core(Link link, double core_a_byte) {
  if (core_a_byte == 0) return link;
  const double most = 1 / core_a_byte;
  const bool is_free = link.bytes_per_second == 0;
  link.bytes_per_second = is_free ? most : std::min(link.bytes_per_second, most);
  link.core_share = std::max(link.core_share, link.bytes_per_second / most);
  if (link.measured.is_free()) return link;
  std::vector<CostCurve::Point> points = link.measured.points();
  for (CostCurve::Point& point : points)
    point.seconds = std::max(point.seconds, core_a_byte * point.batch);
  link.measured = CostCurve(std::move(points));
  return link;
}

// Whose ranks' cores take turns.
Link slowed(Link link, double factor) {
  link.latency *= factor;
  link.bytes_per_second /= factor;
  link.measured = link.measured.times(factor);
  return link;
}

// Driven by cores that drive other ranks' links, too. What a core has no time for makes a link
// slower; where a node has several ranks, the all-reduce in levels shares the driving among them.
Link driven_in_turns(Link link, double turns, int ranks_a_node) {
  const double share = link.core_share * turns;
  const bool has_time = ranks_a_node > 1 || share <= 1;
  if (!has_time) link = slowed(std::move(link), share);
  link.core_share = has_time ? share : 1;
  return link;
}

}  // namespace

Machine machine_in_use(
    const Machine& machine, const ModelProfile& profile, const Ranks& ranks, const Groups& groups) {
  if (ranks.nodes == 1 && groups.count == 1) return machine;
  Machine real = machine;
  const int a_node = ranks.a_node * groups.count;
  const double turns = profile.company.slows_by_turns(machine.neighbours(ranks.nodes, a_node));
  real.within = slowed(machine.within, turns);
  if (ranks.nodes == 1) return real;
  real.between = driven_in_turns(
      driven_by_core(shared(machine.between, groups.on_the_link), profile.overheads.socket_core),
      turns, ranks.a_node);
  return real;
}

}  // namespace lockstep::plan
