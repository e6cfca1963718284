#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/host/host_backend.h"
#include "lockstep/core/error.h"

namespace lockstep {

/// Ranks cannot share memory, or not watch each other's processes; thrown in all of them alike.
class MemoryNotShared : public CommError {
 public:
  using CommError::CommError;
};

/// Carries the collectives of ranks that are threads of one process, without copying.
class ThreadBackend : public host::HostBackend {
 public:
  /// Makes the memory through which `size` threads meet.
  static std::shared_ptr<host::SharedRegion> make_region(int size);

  ThreadBackend(std::shared_ptr<host::SharedRegion> region, int rank);

  std::string name() const override { return "threads"; }
  std::shared_ptr<Backend> subgroup(const std::vector<int>& members) override;

 private:
  int subgroups_ = 0;
};

/// Carries the collectives of ranks that are processes of one host.
///
/// The shared memory has no name: it is passed from process to process and is gone with the last of
/// them, however they end. Tensors made by empty() are reduced in place; others are copied through
/// a staging buffer.
class ShmBackend : public host::HostBackend {
 public:
  /// Meets the other ranks by `exchange` and watches their processes from then on. Throws
  /// MemoryNotShared in all of them if one cannot.
  static std::shared_ptr<ShmBackend> create(
      int rank, int size, std::chrono::milliseconds timeout, const host::ExchangeText& exchange);

  std::string name() const override { return "shm"; }
  std::shared_ptr<Backend> subgroup(const std::vector<int>& members) override;

 private:
  ShmBackend(std::shared_ptr<host::SharedRegion> region, int rank);

  /// Shares the memory that the first member made and watches the members' processes.
  static std::shared_ptr<ShmBackend> open(const std::vector<int>& members, int rank,
      const std::vector<std::string>& tickets, const HostBackend* parent);
  static std::shared_ptr<ShmBackend> meet(const std::vector<int>& members, int rank,
      std::chrono::milliseconds timeout, const host::ExchangeText& exchange,
      const HostBackend* parent);
};

}  // namespace lockstep
