#include "lockstep/snapshot/apart/snapshot_hosts.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "lockstep/snapshot/group_values.h"

namespace lockstep {
namespace {

constexpr std::chrono::hours kLongest{24 * 30};

}  // namespace

SnapshotHosts::SnapshotHosts(const ProcessGroup& world, int copies, const std::string& own_host) {
  if (copies == 0) return;
  world_ = world;
  group_ = world.split(0, world.rank());
  group_->set_timeout(kLongest);
  std::set<std::string> hosts;
  int rank = 0;
  for (const std::string& host : all_texts(own_host, *group_)) {
    if (hosts.insert(host).second) leaders_.push_back(rank);
    ++rank;
  }
  keepers_ = leaders_;
  keepers_.resize(std::min(keepers_.size(), static_cast<std::size_t>(copies)));
}

bool SnapshotHosts::leads() const {
  return are_apart() && std::ranges::count(leaders_, group_->rank()) > 0;
}

bool SnapshotHosts::keeps() const {
  return are_apart() && std::ranges::count(keepers_, group_->rank()) > 0;
}

}  // namespace lockstep
