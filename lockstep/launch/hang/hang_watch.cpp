#include "lockstep/launch/hang/hang_watch.h"

#include <algorithm>

namespace lockstep::launch {
namespace {

constexpr std::chrono::milliseconds kShortestLook{10}, kLongestLook{250};  // between two looks
constexpr int kLooksMissed = 4;  // by a launcher that is busy

}  // namespace

HangWatch::HangWatch(Milliseconds timeout, std::size_t ranks)
    : timeout_(timeout),
      interval_(std::clamp(timeout / 8, kShortestLook, kLongestLook)),
      ranks_(ranks, Rank{.limit = timeout}) {}

void HangWatch::look(Time now, const std::vector<std::optional<RankProgress>>& ranks) {
  const bool is_first = last_look_ == Time{};
  const std::chrono::nanoseconds most = kLooksMissed * interval_;
  const auto passed = is_first ? std::chrono::nanoseconds(0)
                               : std::min<std::chrono::nanoseconds>(most, now - last_look_);
  last_look_ = now;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    const auto activity = ranks[i] ? std::optional(ranks[i]->activity) : std::nullopt;
    rank.idle =
        activity && activity == rank.activity ? rank.idle + passed : std::chrono::nanoseconds(0);
    rank.activity = activity;
    const bool has_stepped = ranks[i] && ranks[i]->has_stepped;
    rank.limit = has_stepped ? timeout_ : timeout_ * kBeforeFirstStep;
  }
}

HangWatch::Milliseconds HangWatch::idle(std::size_t rank) const {
  return std::chrono::duration_cast<Milliseconds>(ranks_[rank].idle);
}

}  // namespace lockstep::launch
