#include "lockstep/bench/studies/collectives/sweep_grid.h"

#include <algorithm>
#include <stdexcept>

#include "lockstep/bench/statistics/oversubscription.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

constexpr std::int64_t kSmallest = 1024;
constexpr std::int64_t kLargestQuick = std::int64_t{64} << 20;
constexpr std::int64_t kLargestFull = std::int64_t{256} << 20;
constexpr int kFactor = 4;

const CollectiveWay& find_way(const std::string& name) {
  const auto& ways = collective_ways();
  const auto found = std::find_if(
      ways.begin(), ways.end(), [&](const CollectiveWay& way) { return way.name == name; });
  if (found == ways.end()) throw std::logic_error(concat("collectives: no way ", name));
  return *found;
}

std::string id_of(const SweepPoint& point, std::int64_t largest) {
  const std::string name = name_of(point.collective);
  return concat(name, "-n", point.ranks, "-", point.way, "-", largest >> 20, "MiB");
}

std::vector<std::string> command_of(const SweepPoint& point, std::int64_t largest) {
  std::vector<std::string> command{"collectives", "--op", name_of(point.collective)};
  const auto& flags = find_way(point.way).flags;
  command.insert(command.end(), flags.begin(), flags.end());
  const std::vector<std::string> sweep{
      "--nproc-per-node", std::to_string(point.ranks), "--min-bytes", std::to_string(kSmallest),
      "--max-bytes",      std::to_string(largest),     "--factor",    std::to_string(kFactor)};
  command.insert(command.end(), sweep.begin(), sweep.end());
  return command;
}

}  // namespace

const std::vector<CollectiveWay>& collective_ways() {
  // Gloo's thread shares the core of a rank that is pinned, which makes it slower: it is not
  // pinned.
  static const std::vector<CollectiveWay> kWays{
      {"shm", "shm", {"--backend", "shm", "--memory", "group"}},
      {"shm-staged", "shm staged", {"--backend", "shm", "--memory", "ordinary"}},
      {"threads", "threads", {"--backend", "threads", "--memory", "group"}},
      {kGloo, "Gloo", {"--backend", "gloo", "--memory", "ordinary", "--no-pin"}}};
  return kWays;
}

std::vector<SweepPoint> sweep_grid(bool full) {
  std::vector<Collective> collectives{Collective::kAllReduce, Collective::kBroadcast};
  if (full) {
    collectives.insert(collectives.end(), {Collective::kAllGather, Collective::kReduceScatter});
  }
  std::vector<SweepPoint> grid;
  for (const Collective collective : collectives) {
    for (int ranks = 2; ranks <= (full ? 8 : 2); ranks *= 2) {
      for (const CollectiveWay& way : collective_ways()) {
        grid.push_back({collective, way.name, ranks});
      }
    }
  }
  return grid;
}

std::vector<std::int64_t> sweep_sizes(std::int64_t largest) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t bytes = kSmallest; bytes <= largest; bytes *= kFactor) sizes.push_back(bytes);
  return sizes;
}

StudyCell sweep_cell(const SweepPoint& point, const StudyOptions& options) {
  const std::int64_t largest = options.full ? kLargestFull : kLargestQuick;
  return {
      .id = id_of(point, largest),
      .settings =
          {{"op", name_of(point.collective)},
           {"ranks", std::to_string(point.ranks)},
           {"way", point.way},
           {"largest", std::to_string(largest)}},
      .command = command_of(point, largest),
      .places = point.ranks,
      // Gloo has a thread beside each rank, so no way is kept from cores that are free.
      .cores = options.cores,
      .environment = {},
      .rounds = 0,
      .not_measurable = ""};
}

}  // namespace lockstep::bench
