#include "lockstep/launch/supervisor.h"

#include <poll.h>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "lockstep/launch/patience.h"

namespace lockstep::launch {
namespace {

std::vector<int> with_child_signal(std::vector<int> signals) {
  signals.push_back(SIGCHLD);
  return signals;
}

}  // namespace

Supervisor::Supervisor(std::vector<int> signals, bool quiet)
    : signals_(with_child_signal(std::move(signals))),
      console_(STDOUT_FILENO, STDERR_FILENO),
      quiet_(quiet) {}

int Supervisor::run(const RestartRules& rules, std::int64_t death_ns, const MakeAttempt& attempt) {
  AttemptPlan plan{.restart = 0, .death_ns = death_ns};
  RestartHistory history;
  while (true) {
    const AttemptReport report = make(attempt, plan);
    const NextAttempt next = next_attempt(rules, history, report.end);
    history = next.history;
    const std::string consequence =
        next.starts ? concat("restart ", history.restarts, " of ", rules.most) : "the run failed";
    if (!next.starts || !quiet_) report_failure(report, consequence, next.reason);
    if (!next.starts) {
      drain();
      return next.code;
    }
    if (const auto signal = pause(next.pause)) {
      say(concat("not restarted: ", signal_name(*signal)));
      drain();
      return code_of_stop(rules, *signal);
    }
    plan = {.restart = history.restarts, .death_ns = report.death_ns};
  }
}

/// Waits before another attempt; returns a signal that ended that.
std::optional<int> Supervisor::pause(std::chrono::seconds time) {
  if (time.count() == 0) return std::nullopt;
  say(concat("attempts fail soon after their start: waiting ", time.count(), " s"));
  const auto end = std::chrono::steady_clock::now() + time;
  while (true) {
    const int left = patience::milliseconds_until(end);
    if (left == 0) return std::nullopt;
    const auto signals = wait(left);
    if (!signals.empty()) return signals.front();
  }
}

std::vector<int> Supervisor::outside_signals() const {
  std::vector<int> signals = signals_.read();
  std::erase(signals, SIGCHLD);
  return signals;
}

std::vector<int> Supervisor::wait(int milliseconds, int other) {
  std::vector<pollfd> waited{{signals_.descriptor(), POLLIN, 0}, {other, POLLIN, 0}};
  console_.add_to(waited);
  ::poll(waited.data(), waited.size(), milliseconds);
  console_.flush();
  return outside_signals();
}

AttemptReport Supervisor::make(const MakeAttempt& attempt, const AttemptPlan& plan) {
  try {
    return attempt(plan);
  } catch (...) {
    console_.flush();
    throw;
  }
}

void Supervisor::report_failure(
    const AttemptReport& report, const std::string& consequence, const std::string& reason) {
  if (report.failure.empty()) return;
  console_.write(Stream::kErrors, concat("lockstep: ", consequence, ": ", report.failure));
  if (!reason.empty()) console_.write(Stream::kErrors, concat("lockstep: ", reason, "\n"));
}

void Supervisor::drain() {
  console_.flush();
  while (!console_.empty() && wait(-1).empty()) {
  }
}

void Supervisor::say(const std::string& text) {
  if (!quiet_) console_.write(Stream::kErrors, concat("lockstep: ", text, "\n"));
}

}  // namespace lockstep::launch
