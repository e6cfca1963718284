#include "bench/collectives/collective.h"

#include <stdexcept>

namespace lockstep::bench {

const char* name_of(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "all_reduce";
    case Collective::kReduce:
      return "reduce";
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kAllGather:
      return "all_gather";
    case Collective::kReduceScatter:
      return "reduce_scatter";
    case Collective::kAllToAll:
      return "all_to_all";
  }
  throw std::logic_error("a collective without a name");
}

std::optional<Collective> find_collective(const std::string& name) {
  for (const Collective each : kCollectives) {
    if (name == name_of(each)) return each;
  }
  return std::nullopt;
}

double bus_factor(Collective collective, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (collective) {
    case Collective::kAllReduce:
      return 2 * others;
    case Collective::kReduce:
    case Collective::kBroadcast:
      return 1;
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return others;
  }
  throw std::logic_error("a collective without a bus factor");
}

double copy_share(Collective collective, int ranks) {
  const double size = ranks;
  switch (collective) {
    // A rank reads its share of every rank's tensor, and writes it into every rank's.
    case Collective::kAllReduce:
    // Every rank's output is as large as the message, and comes from as many bytes.
    case Collective::kAllGather:
    case Collective::kAllToAll:
      return 1;
    // It reads as for all_reduce, and writes once.
    case Collective::kReduce:
    case Collective::kReduceScatter:
      return (1 + 1 / size) / 2;
    // All but the root need a copy; all share the work.
    case Collective::kBroadcast:
      return (size - 1) / size;
  }
  throw std::logic_error("a collective without a share");
}

}  // namespace lockstep::bench
