#include "lockstep/launch/hang/stall.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/liveness/own_slot.h"

namespace lockstep::launch {
namespace {

using Sights = std::vector<RankSight>;

bool is_compared(const GroupProgress& group) { return group.id != kOtherGroups; }

GroupCounts count_of(const RankSight& rank, bool takes_least) {
  GroupCounts counts;
  for (const GroupProgress& group : rank.progress.groups) {
    if (!is_compared(group)) continue;
    const auto [found, is_new] = counts.emplace(group.id, group.begun);
    // Ranks that are threads share a process.
    if (!is_new && takes_least) found->second = std::min(found->second, group.begun);
    if (!is_new && !takes_least) found->second = std::max(found->second, group.begun);
  }
  return counts;
}

/// Says whether `rank` has begun fewer collectives of some group than `other`.
bool is_behind(const RankSight& rank, const RankSight& other) {
  return launch::is_behind(count_of(rank, true), count_of(other, false));
}

bool is_behind_any(const RankSight& rank, const Sights& ranks) {
  return std::any_of(ranks.begin(), ranks.end(),
      [&](const RankSight& other) { return other.is_watched && is_behind(rank, other); });
}

// One that polls for the end of a call is in none, but ahead of those that it waits for.
bool waits_for_others(const RankSight& rank, const Sights& ranks) {
  if (rank.progress.waiting() != nullptr) return true;
  return std::any_of(ranks.begin(), ranks.end(), [&](const RankSight& other) {
    return other.is_watched && &other != &rank && is_behind(other, rank) && !is_behind(rank, other);
  });
}

template <typename Holds>
std::vector<std::size_t> places_of(const Sights& ranks, Holds holds) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (ranks[i].is_watched && ranks[i].is_late && holds(ranks[i])) places.push_back(i);
  return places;
}

std::string bytes_text(std::int64_t bytes) {
  constexpr double kKibi = 1024, kMebi = kKibi * 1024;
  const auto value = static_cast<double>(bytes);
  if (value >= kMebi) return fixed_text(value / kMebi, "MiB");
  return value >= kKibi ? fixed_text(value / kKibi, "KiB") : concat(bytes, " bytes");
}

std::string call_text(const GroupCall& call, std::uint64_t number, const GroupProgress& group) {
  std::string text = name_of(call.operation);
  if (number > 0) text += concat(" ", number);
  if (call.bytes > 0) text += concat(" (", bytes_text(call.bytes), ")");
  if (group.id != kWorldGroup && group.size > 0) text += concat(" of a group of ", group.size);
  return text;
}

std::string wait_text(const GroupProgress& group) {
  return call_text(group.wait->call, group.wait->number, group);
}

std::string last_text(const RankSight& rank) {
  const auto& groups = rank.progress.groups;
  const auto world = std::find_if(groups.begin(), groups.end(), [](const GroupProgress& group) {
    return group.id == kWorldGroup && group.last.operation != Operation::kNone;
  });
  if (world == groups.end()) return "";
  return concat("; its last one was ", call_text(world->last, world->begun, *world));
}

std::string ranks_text(const std::vector<std::string>& ranks) {
  if (ranks.size() == 1) return concat("rank ", ranks.front(), " waits in ");
  constexpr std::size_t kMost = 8;
  std::vector<std::string> shown(
      ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(std::min(kMost, ranks.size())));
  if (ranks.size() > kMost) return concat("ranks ", joined(shown), " and more wait in ");
  const std::string last = shown.back();
  shown.pop_back();
  return concat("ranks ", joined(shown), " and ", last, " wait in ");
}

}  // namespace

bool is_behind(const GroupCounts& one, const GroupCounts& other) {
  return std::any_of(one.begin(), one.end(), [&](const auto& each) {
    const auto found = other.find(each.first);
    return found != other.end() && each.second < found->second;
  });
}

std::string fixed_text(double value, const char* unit) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << value << ' ' << unit;
  return text.str();
}

Stall stall_of(const Sights& ranks) {
  const auto is_watched = [](const RankSight& rank) { return rank.is_watched; };
  const auto is_at_fault = [&](const RankSight& rank) {
    return rank.is_watched && rank.is_late && (rank.is_stopped || !waits_for_others(rank, ranks));
  };
  if (std::any_of(ranks.begin(), ranks.end(), is_at_fault)) return Stall::kHangs;
  const bool all_late = std::all_of(ranks.begin(), ranks.end(),
      [](const RankSight& rank) { return !rank.is_watched || rank.is_late; });
  return all_late && std::any_of(ranks.begin(), ranks.end(), is_watched) ? Stall::kWaits
                                                                         : Stall::kNone;
}

bool are_in_step(const Sights& ranks) {
  return std::all_of(ranks.begin(), ranks.end(), [&](const RankSight& rank) {
    const GroupProgress* const group = rank.progress.waiting();
    return rank.is_watched && group != nullptr && is_compared(*group) && group->wait->number > 0 &&
           !is_behind_any(rank, ranks);
  });
}

std::vector<std::size_t> ranks_behind(const Sights& ranks) {
  auto found = places_of(ranks, [](const RankSight& rank) { return rank.is_stopped; });
  if (found.empty())
    found = places_of(ranks, [&](const RankSight& rank) { return !waits_for_others(rank, ranks); });
  if (found.empty())
    found = places_of(ranks, [&](const RankSight& rank) { return is_behind_any(rank, ranks); });
  return found.empty() ? places_of(ranks, [](const RankSight&) { return true; }) : found;
}

std::string activity_text(const RankSight& rank) {
  const GroupProgress* const group = rank.progress.waiting();
  const std::string where = group != nullptr ? wait_text(*group) : "";
  if (rank.is_stopped)
    return concat("is stopped by a signal", where.empty() ? "" : concat(", in ", where));
  if (group == nullptr) return concat("is in no call of a group", last_text(rank));
  return concat("waits in ", where);
}

std::string waiting_text(const Sights& ranks, const std::vector<std::size_t>& behind) {
  std::map<std::string, std::vector<std::string>> by_call;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const GroupProgress* const group = ranks[i].progress.waiting();
    const bool is_behind = std::find(behind.begin(), behind.end(), i) != behind.end();
    if (!ranks[i].is_watched || group == nullptr || is_behind) continue;
    by_call[wait_text(*group)].push_back(std::to_string(ranks[i].rank));
  }
  std::vector<std::string> sentences;
  for (const auto& [call, who] : by_call) sentences.push_back(ranks_text(who) + call);
  return joined(sentences, "; ");
}

GroupCounts least_begun(const Sights& ranks) {
  GroupCounts least;
  for (const RankSight& rank : ranks) {
    if (!rank.is_watched) continue;
    for (const auto& [id, begun] : count_of(rank, true)) {
      const auto [found, is_new] = least.emplace(id, begun);
      if (!is_new) found->second = std::min(found->second, begun);
    }
  }
  return least;
}

}  // namespace lockstep::launch
