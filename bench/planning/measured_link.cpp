#include "bench/planning/measured_link.h"

#include <algorithm>
#include <set>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

std::string backend_of(const std::vector<SweepLine>& lines, const std::string& where) {
  std::set<std::string> backends;
  for (const SweepLine& line : lines) backends.insert(line.backend);
  if (backends.size() == 1) return *backends.begin();
  if (backends.contains("gloo")) return "gloo";
  throw DataError(concat(where, ": has ", backends.size(),
      " backends and no gloo; a link is measured by lockstep collectives --backend gloo"));
}

double messages_of(const SweepLine& line) { return 2.0 * (line.ranks - 1); }

// Long messages are those that a core may have time beside.
double core_share_of(const SweepLine& longest) {
  return std::min(1.0, longest.core_seconds.value_or(0) / longest.median_seconds());
}

}  // namespace

plan::Link link_of_sweep(const std::vector<SweepLine>& lines, const std::string& where) {
  const std::string backend = backend_of(lines, where);
  std::vector<SweepLine> own;
  for (const SweepLine& line : lines) {
    const bool counts = line.collective == Collective::kAllReduce && line.backend == backend;
    if (counts && line.ranks > 1) own.push_back(line);
  }
  std::sort(own.begin(), own.end(),
      [](const SweepLine& one, const SweepLine& other) { return one.bytes < other.bytes; });
  if (own.size() < 2)
    throw DataError(concat(where, ": has no all_reduce of two sizes by ", backend,
        "; a link is measured by lockstep collectives --op all_reduce"));
  std::vector<plan::CostCurve::Point> points;
  for (const SweepLine& line : own)
    points.push_back(
        {static_cast<double>(line.bytes) / line.ranks, line.median_seconds() / messages_of(line)});
  plan::Link link{.latency = points.front().seconds,
      .bytes_per_second = points.back().batch / points.back().seconds,
      .core_share = core_share_of(own.back())};
  try {
    link.measured = plan::CostCurve(std::move(points));
  } catch (const InvalidArgument& error) {
    throw DataError(concat(where, ": ", error.what()));
  }
  return link;
}

}  // namespace lockstep::bench
