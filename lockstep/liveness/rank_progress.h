#pragma once

#include <cstdint>
#include <optional>
#include <sys/types.h>
#include <vector>

#include "lockstep/liveness/slot.h"

namespace lockstep {

/// One rank's calls in one group, as its slot says.
struct GroupProgress {
  /// A call for whose end a thread waits.
  struct Wait {
    GroupCall call;
    std::uint64_t number = 0;  ///< among the group's collectives; 0: it is none of them

    bool operator==(const Wait&) const = default;
  };

  std::uint64_t id = 0;
  int rank = 0, size = 0;   ///< in the group
  std::uint64_t begun = 0;  ///< collectives
  GroupCall last = {};      ///< that was begun
  std::optional<Wait> wait = {};
};

/// One rank's progress, as its slot says.
struct RankProgress {
  std::optional<std::int64_t> step = {};    ///< nothing: it does not report how far it is
  bool has_stepped = false;                 ///< in this attempt
  std::uint64_t activity = 0;               ///< another number after each sign of life
  pid_t process = 0;                        ///< that has attached; 0: none has
  RescueState rescue = RescueState::kNone;  ///< if it loses its peers
  std::vector<GroupProgress> groups = {};

  /// Returns a group in which a thread waits; null: none does.
  const GroupProgress* waiting() const;
};

/// Reads a slot while its rank may be writing.
RankProgress read_progress(const ProgressSlot& slot);

}  // namespace lockstep
