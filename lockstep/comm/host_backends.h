#pragma once

#include <chrono>
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

/// Carries the collectives of ranks that are processes of one host.
///
/// The shared memory has no name: it is passed from process to process and is gone with the last of
/// them, however they end. Tensors made by empty() are reduced in place; others are copied through
/// a staging buffer.
class ShmBackend : public host::HostBackend {
 public:
  /// Meets the other ranks by `exchange` and watches their processes from then on.
  static std::shared_ptr<ShmBackend> create(
      int rank, int size, std::chrono::milliseconds timeout, const host::ExchangeText& exchange);

  std::string name() const override { return "shm"; }
  std::shared_ptr<Backend> subgroup(const std::vector<int>& members) override;

 private:
  ShmBackend(std::shared_ptr<host::SharedRegion> region, int rank, int size);

  static std::shared_ptr<ShmBackend> join(const std::vector<int>& members, int rank,
      std::chrono::milliseconds timeout, const host::ExchangeText& exchange);
};

}  // namespace lockstep
