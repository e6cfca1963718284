#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/host/shared_region.h"
#include "lockstep/core/file_descriptor.h"

namespace lockstep::host {

/// Watches which ranks of the region are gone: left in good order, or died as processes.
class PeerWatch {
 public:
  /// Watches the processes that the slots name; threads have none.
  explicit PeerWatch(const SharedRegion& region);

  /// Returns how the rank was lost, in words; nothing while it is alive.
  std::string lost(int rank) const;

 private:
  const SharedRegion& region_;
  std::vector<FileDescriptor> processes_;
};

}  // namespace lockstep::host
