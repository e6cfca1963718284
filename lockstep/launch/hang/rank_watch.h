#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/hang/rank_stack.h"
#include "lockstep/launch/hang/stall.h"
#include "lockstep/launch/ranks/worker.h"
#include "lockstep/liveness/progress_page.h"

namespace lockstep::launch {

/// The time for which each rank has given no sign of life.
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

  /// Excuses a rank that cannot give a sign of life.
  void excuse(std::size_t rank) { ranks_[rank].idle = {}; }

  /// Returns how long a rank has given no sign.
  Milliseconds idle(std::size_t rank) const;

  /// Returns whether that is too long.
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

/// The launcher's findings about a rank that hangs.
struct HangReport {
  std::size_t rank = 0;  ///< index of the rank that is taken for the cause
  std::string what;      ///< it does, and for how long, to follow its name
  std::string others;    ///< ranks that are behind, and what the rest wait for; may be empty
  std::vector<std::vector<ThreadStack>> stacks = {};  ///< of each rank; empty of one that has ended
};

/// Watches whether the ranks of one node make progress.
class RankWatch {
 public:
  using Clock = HangWatch::Time::clock;

  /// A timeout of 0 watches nothing.
  RankWatch(std::chrono::milliseconds timeout, SharedProgress& progress, std::size_t ranks);

  /// Looks at the ranks, if that is due.
  Stall look(const std::vector<Worker>& workers);

  /// Returns when to look again; nothing if nothing is watched.
  std::optional<Clock::time_point> due() const;

  /// Returns what it saw last.
  const std::vector<RankSight>& sights() const { return sights_; }

  /// Finds the cause of a hang that it saw, and asks all ranks for their stacks, which takes a
  /// second at most.
  HangReport report(const std::vector<Worker>& workers);

 private:
  void see(std::size_t place, const Worker& worker, std::optional<RankProgress> progress);

  std::chrono::milliseconds timeout_;
  SharedProgress& progress_;
  HangWatch watch_;
  std::vector<RankSight> sights_;
  Stall stall_ = Stall::kNone;
};

/// Returns the lines for stacks.
std::string stack_text(const std::vector<ThreadStack>& stacks);

/// Appends a rank's stacks to `rank-N-stack.log` in the folder for logs, and returns its name;
/// empty where there is no folder, or it cannot be written.
std::string keep_stack(
    const OutputOptions& options, int rank, int restart, const std::vector<ThreadStack>& stacks);

}  // namespace lockstep::launch
