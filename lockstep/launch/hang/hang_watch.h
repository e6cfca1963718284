#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/liveness/rank_progress.h"

namespace lockstep::launch {

/// The clock of each rank that has given no sign of life.
///
/// It counts only time in which the launcher itself could look: after a pause of the whole machine,
/// or of a container, nobody is late.
class HangWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Milliseconds = std::chrono::milliseconds;

  /// A rank may take this many times as long until its first step: it reads data and makes a model.
  static constexpr int kBeforeFirstStep = 5;

  HangWatch(Milliseconds timeout, std::size_t ranks);

  /// Looks at all ranks; nothing stands for one that is not watched, or has ended.
  void look(Time now, const std::vector<std::optional<RankProgress>>& ranks);

  /// Takes it for a sign of life that a rank cannot give one.
  void excuse(std::size_t rank) { ranks_[rank].idle = {}; }

  /// Returns how long a rank has given no sign.
  Milliseconds idle(std::size_t rank) const;

  /// Says whether that is too long.
  bool is_late(std::size_t rank) const { return ranks_[rank].idle >= ranks_[rank].limit; }

  /// Returns when to look again.
  Time due() const { return last_look_ + interval_; }

 private:
  struct Rank {
    std::optional<std::uint64_t> activity = {};
    std::chrono::nanoseconds idle{0}, limit{0};
  };

  Milliseconds timeout_, interval_;
  Time last_look_{};
  std::vector<Rank> ranks_;
};

}  // namespace lockstep::launch
