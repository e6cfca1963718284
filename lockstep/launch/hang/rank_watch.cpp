#include "lockstep/launch/hang/rank_watch.h"

#include <algorithm>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/launch/hang/rank_stack.h"

namespace lockstep::launch {
namespace {

constexpr std::chrono::milliseconds kShortestLook{10}, kLongestLook{250};  // between two looks
constexpr int kLooksMissed = 4;  // by a launcher that is busy

constexpr std::chrono::seconds kForStacks{1};

std::string what_it_does(const RankSight& sight) {
  const auto step = sight.progress.step.value_or(0);
  return concat("hangs: it ", activity_text(sight), "; no progress for ",
      fixed_text(static_cast<double>(sight.idle.count()) / 1000, "s"),
      step > 0 ? concat(", after step ", step) : ", before its first step");
}

std::string others_text(
    const std::vector<RankSight>& sights, const std::vector<std::size_t>& behind) {
  std::vector<std::string> sentences;
  for (std::size_t i = 1; i < behind.size() && i < kMostListed; ++i) {
    const RankSight& sight = sights[behind[i]];
    sentences.push_back(concat("rank ", sight.rank, " ", activity_text(sight)));
  }
  const std::string waiting = waiting_text(sights, behind);
  if (!waiting.empty()) sentences.push_back(waiting);
  return joined(sentences, "; ");
}

// The process that attached may be a child of the rank's program, and may end before it.
bool is_there(const Worker& worker, pid_t process) {
  return !worker.status && process > 0 && ::getpgid(process) == worker.process->pid();
}

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

RankWatch::RankWatch(std::chrono::milliseconds timeout, SharedProgress& progress, std::size_t ranks)
    : timeout_(timeout), progress_(progress), watch_(timeout, ranks), sights_(ranks) {}

Stall RankWatch::look(const std::vector<Worker>& workers) {
  if (!due() || Clock::now() < *due()) return stall_;
  std::vector<std::optional<RankProgress>> seen(workers.size());
  for (std::size_t i = 0; i < workers.size(); ++i) {
    RankProgress progress = progress_.progress(static_cast<int>(i));
    if (progress.step && is_there(workers[i], progress.process)) seen[i] = std::move(progress);
  }
  watch_.look(Clock::now(), seen);
  for (std::size_t i = 0; i < workers.size(); ++i) see(i, workers[i], std::move(seen[i]));
  return stall_ = stall_of(sights_);
}

std::optional<RankWatch::Clock::time_point> RankWatch::due() const {
  return timeout_.count() > 0 ? std::optional(watch_.due()) : std::nullopt;
}

// /proc is read only for a late rank. A rank under a debugger may take its time.
void RankWatch::see(std::size_t place, const Worker& worker, std::optional<RankProgress> progress) {
  RankSight& sight = sights_[place];
  sight = {.rank = worker.number, .is_watched = progress.has_value()};
  if (!progress) return;
  sight.progress = *std::move(progress);
  if (watch_.is_late(place)) {
    const ProcessState process(sight.progress.process);
    const char state = process.letter();
    if (process.is_traced() || state == 'Z' || state == '?') watch_.excuse(place);
    sight.is_stopped = state == 'T';
  }
  sight.is_late = watch_.is_late(place);
  sight.idle = watch_.idle(place);
}

HangReport RankWatch::report(const std::vector<Worker>& workers) {
  const auto behind = ranks_behind(sights_);
  HangReport report{.rank = behind.front(),
      .what = what_it_does(sights_[behind.front()]),
      .others = others_text(sights_, behind)};
  SymbolTables tables;  // of all ranks, which run the same program
  const auto deadline = Clock::now() + kForStacks;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    const RankSight& sight = sights_[i];
    auto& stacks = report.stacks.emplace_back();
    if (sight.is_watched && is_there(workers[i], sight.progress.process))
      stacks = ask_for_stacks(
          progress_.slot(static_cast<int>(i)), sight.progress.process, deadline, tables);
  }
  return report;
}

std::string stack_text(const std::vector<ThreadStack>& stacks) {
  std::string text;
  for (const ThreadStack& stack : stacks) {
    text += concat("thread ", stack.thread, "\n");
    for (const std::string& frame : stack.frames) text += concat("  ", frame, "\n");
  }
  return text;
}

std::string keep_stack(
    const OutputOptions& options, int rank, int restart, const std::vector<ThreadStack>& stacks) {
  if (options.log_dir.empty()) return "";
  const std::string path = concat(options.log_dir, "/rank-", rank, "-stack.log");
  const std::string heading = concat("lockstep: attempt ", restart + 1, "\n");
  return append_to(path, heading + stack_text(stacks)) ? path : "";
}

}  // namespace lockstep::launch
