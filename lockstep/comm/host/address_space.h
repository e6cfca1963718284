#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/host/shared_region.h"

namespace lockstep::host {

/// Lets every rank contribute a short text and see those of all, in rank order.
using ExchangeText = std::function<std::vector<std::string>(const std::string&)>;

/// Says how ranks on one host see one another's tensors without copying them.
class AddressSpace {
 public:
  virtual ~AddressSpace() = default;

  /// Names the memory so that the other ranks can find it; nothing if they cannot see it.
  virtual std::optional<Exposure> expose(const void* memory, std::size_t bytes) const = 0;

  /// Finds the memory that a rank exposed.
  virtual std::byte* resolve(int rank, const Exposure& exposure) const = 0;

  /// Makes a tensor that expose() can name. Every rank calls it with the same arguments.
  virtual torch::Tensor empty(
      std::int64_t elements, const torch::TensorOptions& options, const ExchangeText& exchange) = 0;
};

}  // namespace lockstep::host
