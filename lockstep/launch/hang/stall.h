#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "lockstep/liveness/progress_page.h"

namespace lockstep::launch {

/// A rank as the launcher sees it.
struct RankSight {
  int rank = 0;             ///< in the world
  bool is_watched = false;  ///< it runs, and reports its progress
  bool is_late = false;     ///< it has given no sign of life for too long
  bool is_stopped = false;  ///< by a signal, as SIGSTOP
  std::chrono::milliseconds idle{0};
  RankProgress progress = {};
};

/// The verdict on ranks some of which make no progress.
enum class Stall {
  kNone,   ///< there is progress, or it may still come
  kWaits,  ///< no rank is at fault by itself: all wait in calls that others have to join
  kHangs   ///< a late rank waits for no other, or is stopped
};

/// Decides for the ranks of one node.
Stall stall_of(const std::vector<RankSight>& ranks);

/// Returns whether all ranks wait in collectives that all others of this node have begun, too: then
/// the network or another node is slow.
bool are_in_step(const std::vector<RankSight>& ranks);

/// Finds the ranks that keep the others waiting: those that are stopped; else those that are late
/// and wait for nobody; else those that have begun fewer collectives of a group than others of it.
/// If there are none of these, all ranks that are late. Returns places in the list.
std::vector<std::size_t> ranks_behind(const std::vector<RankSight>& ranks);

/// Writes a number with one decimal: `4.0 MiB`.
std::string fixed_text(double value, const char* unit);

/// Returns what a rank does, to follow its name: `waits in all_reduce 42 (4.0 MiB) for 5.1 s`, `is
/// stopped by a signal in ...`, `is in no call; its last one was all_reduce 41 (4 bytes)`.
std::string activity_text(const RankSight& rank);

/// Returns in one sentence what the ranks that are not behind wait for, grouped by call: `ranks 0
/// and 2 wait in all_reduce 42 (4 bytes)`. Empty: none waits.
std::string waiting_text(
    const std::vector<RankSight>& ranks, const std::vector<std::size_t>& behind);

/// The number of collectives begun, by group.
using GroupCounts = std::map<std::uint64_t, std::uint64_t>;

/// Returns whether one has fewer of some group than the other.
bool is_behind(const GroupCounts& one, const GroupCounts& other);

/// Counts what the ranks of a node have begun, which is what the last one has.
GroupCounts least_begun(const std::vector<RankSight>& ranks);

}  // namespace lockstep::launch
