#pragma once

#include <memory>
#include <mutex>

#include "lockstep/comm/host/address_space.h"

namespace lockstep::host {

/// Is the address space of ranks that are processes: each allocation is one segment per rank,
/// mapped by all.
///
/// A segment lives as long as the tensor made in it; segments that this rank has let go cannot be
/// resolved.
class SymmetricMemory : public AddressSpace {
 public:
  SymmetricMemory(int rank, int size);

  std::optional<Exposure> expose(const void* memory, std::size_t bytes) const override;
  std::byte* resolve(int rank, const Exposure& exposure) const override;
  torch::Tensor empty(
      std::int64_t elements, const torch::TensorOptions& options,
      const ExchangeText& exchange) override;

 private:
  struct Segment;

  int rank_, size_;
  std::uint64_t next_ = Exposure::kFirstSegment;
  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<Segment>> segments_;
};

}  // namespace lockstep::host
