#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/host/shared_region.h"
#include "lockstep/core/file_descriptor.h"

namespace lockstep::host {

/// Watches which ranks of the region are gone: left in good order, or died as processes.
class PeerWatch {
 public:
  /// Watches the ranks' processes. Throws std::system_error if that is not possible here.
  PeerWatch(const SharedRegion& region, const std::vector<int>& processes);

  /// Returns how the rank was lost, in words; nothing while it is alive.
  std::string lost(int rank) const;

 private:
  const SharedRegion& region_;
  std::vector<int> processes_;
  std::vector<FileDescriptor> watched_;
};

}  // namespace lockstep::host
