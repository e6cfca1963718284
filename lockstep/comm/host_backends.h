#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/backend.h"
#include "lockstep/comm/host/engine.h"
#include "lockstep/comm/store.h"
#include "lockstep/core/error.h"

namespace lockstep {

/// Ranks cannot share memory, or not watch each other's processes; thrown in all of them alike.
class MemoryNotShared : public CommError {
 public:
  using CommError::CommError;
};

namespace host {

/// Carries collectives between ranks on one host through shared memory. Two derived classes, for
/// threads and for processes, decide how memory is seen and how a region is shared.
class HostBackend : public Backend {
 public:
  bool sums_in_rank_order() const override { return true; }
  void match_tags() override { engine_->match_tags(); }
  bool receives_from_any() const override { return engine_->matches_tags(); }
  torch::Tensor allocate(std::int64_t elements, const torch::TensorOptions& options) override {
    return engine_->space().allocate(elements, options);
  }
  void abort(const std::string& reason) override { engine_->abort(reason); }
  std::chrono::milliseconds timeout() const override { return engine_->timeout(); }
  void set_timeout(std::chrono::milliseconds timeout) override { engine_->set_timeout(timeout); }

  /// Moves what it can of this rank's messages; returns whether some are still under way.
  bool advance_messages() { return engine_->advance_messages(); }

  const std::shared_ptr<SharedRegion>& shared_region() const { return region_; }

 protected:
  HostBackend(std::shared_ptr<SharedRegion> region, std::unique_ptr<AddressSpace> space, int rank);

  Work begin(const CollectiveCall& call) override;
  torch::Tensor make_empty(std::int64_t elements, const torch::TensorOptions& options) override;

  Engine& engine() { return *engine_; }
  SharedRegion& region() { return *region_; }
  /// Waits for this group and for the parent's advance each other from now on.
  void join(const HostBackend& parent) { engine_->join(parent.engine_->engines_of_rank()); }
  /// Shares a short text with all ranks of this group, through this group.
  std::vector<std::string> exchange(const std::string& text);

 private:
  std::shared_ptr<SharedRegion> region_;
  std::shared_ptr<Engine> engine_;
};

}  // namespace host

/// Carries the collectives of ranks that are threads of one process, without copying.
class ThreadBackend : public host::HostBackend {
 public:
  /// Makes the memory through which `size` threads meet.
  static std::shared_ptr<host::SharedRegion> make_region(int size);

  ThreadBackend(std::shared_ptr<host::SharedRegion> region, int rank);

  std::string name() const override { return "threads"; }

 protected:
  std::shared_ptr<Backend> make_subgroup(const std::vector<int>& members) override;

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
  /// Meets the other ranks at a store and watches their processes from then on. A `topic` serves
  /// once. Throws MemoryNotShared in all of them if one cannot.
  static std::shared_ptr<ShmBackend> create(const Store& store, const std::string& topic, int rank,
      int size, std::chrono::milliseconds timeout);

  std::string name() const override { return "shm"; }

 protected:
  std::shared_ptr<Backend> make_subgroup(const std::vector<int>& members) override;

 private:
  ShmBackend(
      std::shared_ptr<host::SharedRegion> region, int rank, const std::vector<int>& processes);

  /// Shares the memory that the first member made and watches the members' processes.
  static std::shared_ptr<ShmBackend> open(const std::vector<int>& members, int rank,
      const std::vector<std::string>& tickets, const HostBackend* parent);
  static std::shared_ptr<ShmBackend> meet(const std::vector<int>& members, int rank,
      std::chrono::milliseconds timeout, const host::ExchangeText& exchange,
      const HostBackend* parent);
};

}  // namespace lockstep
