#pragma once

#include <memory>
#include <vector>

#include "lockstep/comm/host/host_backend.h"

namespace lockstep {

/// Carries the collectives of ranks that are threads of one process, without copying.
class ThreadBackend : public host::HostBackend {
 public:
  /// Makes the memory through which `size` threads meet.
  static std::shared_ptr<host::SharedRegion> make_region(int size);

  ThreadBackend(std::shared_ptr<host::SharedRegion> region, int rank);

  std::string name() const override { return "threads"; }
  std::shared_ptr<Backend> subgroup(const std::vector<int>& members) override;
};

}  // namespace lockstep
