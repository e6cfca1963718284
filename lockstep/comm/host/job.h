#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "lockstep/comm/host/collective.h"
#include "lockstep/comm/host/engine.h"
#include "lockstep/core/error.h"

namespace lockstep::host {

/// Is a collective under way on this rank.
struct Engine::Job {
  enum class Phase { kQueued, kArriving, kFinishing };

  Collective collective;
  std::uint64_t number = 0;
  Phase phase = Phase::kQueued;
  bool staged = false;    ///< this rank's memory is seen through its staging buffer
  std::int64_t done = 0;  ///< elements of each piece
  Chunk chunk = {};       ///< of the round under way
  bool complete = false;
  std::exception_ptr error = nullptr;

  /// Is how many elements of each piece fit the staging buffer.
  std::int64_t capacity() const {
    const std::size_t bytes =
        collective.element_bytes() * static_cast<std::size_t>(collective.pieces);
    return static_cast<std::int64_t>(SharedRegion::kStagingBytes / bytes);
  }

  std::string describe() const {
    if (collective.kind == Kind::kBarrier) return concat("barrier #", number);
    return concat(
        kind_name(collective.kind), " #", number, " (", c10::toString(collective.element), ", ",
        collective.elements, " elements)");
  }
};

}  // namespace lockstep::host
