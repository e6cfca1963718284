#include "lockstep/comm/host/peer_watch.h"

#include <cerrno>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lockstep/core/error.h"

namespace lockstep::host {
namespace {

// A pidfd becomes readable when its process ends, and never means a later one of the same number.
FileDescriptor watch(int process) {
  if (process == 0) return {};
  return FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
}

bool has_ended(const FileDescriptor& process) {
  pollfd entry{process.get(), POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

}  // namespace

PeerWatch::PeerWatch(const SharedRegion& region) : region_(region) {
  for (int rank = 0; rank < region.size(); ++rank) {
    const int process = region.slot(rank).process.load();
    processes_.push_back(watch(process));
    if (process != 0 && !processes_.back() && errno != ESRCH)
      throw_errno("watch the process of a rank (pidfd_open)");
  }
}

std::string PeerWatch::lost(int rank) const {
  const RankSlot& slot = region_.slot(rank);
  const int process = slot.process.load();
  if (process != 0) {
    const FileDescriptor& watched = processes_[static_cast<std::size_t>(rank)];
    if (!watched || has_ended(watched))
      return concat("rank ", rank, " (process ", process, ") has ended");
  }
  if (slot.left.load() != 0) return concat("rank ", rank, " has left the group");
  return "";
}

}  // namespace lockstep::host
