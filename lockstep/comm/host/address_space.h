#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/host/shared_region.h"

namespace lockstep::host {

/// Shares a short text with all ranks and returns those of all, in rank order.
using ExchangeText = std::function<std::vector<std::string>(const std::string&)>;

/// The means by which ranks on one host see one another's tensors without copying them.
class AddressSpace {
 public:
  virtual ~AddressSpace() = default;

  /// Names the memory so that the other ranks can find it; nothing if they cannot see it.
  virtual std::optional<Exposure> expose(const void* memory, std::size_t bytes) const = 0;

  /// Finds the memory that a rank exposed; it stays mapped as long as somebody has the result, even
  /// if this rank releases its own part meanwhile.
  virtual std::shared_ptr<std::byte> resolve(int rank, const Exposure& exposure) const = 0;

  /// Makes a tensor that expose() can name. Every rank calls it with the same arguments.
  virtual torch::Tensor empty(
      std::int64_t elements, const torch::TensorOptions& options, const ExchangeText& exchange) = 0;
};

/// The address space of ranks that are processes: each allocation is one segment per rank,
/// mapped by all.
///
/// A segment lives as long as the tensor made in it, and as what was resolved in it; one that this
/// rank has released cannot be resolved.
class SymmetricMemory : public AddressSpace {
 public:
  explicit SymmetricMemory(int rank);

  std::optional<Exposure> expose(const void* memory, std::size_t bytes) const override;
  std::shared_ptr<std::byte> resolve(int rank, const Exposure& exposure) const override;
  torch::Tensor empty(std::int64_t elements, const torch::TensorOptions& options,
      const ExchangeText& exchange) override;

 private:
  struct Segment;

  int rank_;
  std::uint64_t next_ = Exposure::kFirstSegment;
  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<Segment>> segments_;
};

}  // namespace lockstep::host
