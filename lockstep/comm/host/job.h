#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/host/collective.h"

namespace lockstep::host {

/// A collective under way on one rank. Its rounds are begun, worked on and ended in order, and one
/// may begin before the last one has ended.
struct Job {
  Collective collective;
  std::uint64_t number = 0;
  bool at_once = false;          ///< small: all staged, and nobody waits for the others to finish
  bool staged = false;           ///< this rank's memory is seen through its staging buffers
  bool written_by_root = false;  ///< a part of this rank's result of a broadcast
  Cut cut = {};
  std::uint64_t first = 0;                            ///< the number of its first round
  std::int64_t begun = 0, worked = 0, ended = 0;      ///< rounds
  std::vector<ChunkView> exposed = {};                ///< each rank's whole memory; null if staged
  std::vector<std::shared_ptr<std::byte>> held = {};  ///< what of that is others' memory
  bool complete = false;
  std::exception_ptr error = nullptr;

  std::uint64_t round_to_work() const { return first + static_cast<std::uint64_t>(worked); }
  std::uint64_t round_to_end() const { return first + static_cast<std::uint64_t>(ended); }

  /// Returns whether the others leave this rank's result in its staging buffer.
  bool copies_out() const {
    return !at_once && staged && collective.in_place() && collective.output != nullptr;
  }
  /// Returns whether a round ends only when all have finished it: they write this rank's result, or
  /// read what its owner may change as soon as the collective has ended.
  bool waits_for_others() const {
    return copies_out() || written_by_root || (!staged && collective.input != nullptr);
  }
  std::string describe() const;
};

}  // namespace lockstep::host
