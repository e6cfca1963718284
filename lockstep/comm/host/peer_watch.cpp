#include "lockstep/comm/host/peer_watch.h"

#include <cerrno>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lockstep/core/error.h"

namespace lockstep::host {
namespace {

bool has_ended(const FileDescriptor& process) {
  pollfd entry{process.get(), POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

}  // namespace

// A pidfd becomes readable when its process ends, and never means a later one of the same number.
PeerWatch::PeerWatch(const SharedRegion& region, const std::vector<int>& processes)
    : region_(region), processes_(processes) {
  for (const int process : processes) {
    watched_.emplace_back(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
    if (!watched_.back() && errno != ESRCH)
      throw_errno(concat("watch the process ", process, " of a rank (pidfd_open)"));
  }
}

std::string PeerWatch::lost(int rank) const {
  const auto index = static_cast<std::size_t>(rank);
  if (!watched_[index] || has_ended(watched_[index]))
    return concat("rank ", rank, " (process ", processes_[index], ") has ended");
  return region_.slot(rank).left.load() != 0 ? concat("rank ", rank, " has left the group") : "";
}

}  // namespace lockstep::host
