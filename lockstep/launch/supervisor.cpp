#include "lockstep/launch/supervisor.h"

#include <algorithm>
#include <poll.h>
#include <unistd.h>

#include "lockstep/core/error.h"

namespace lockstep::launch {
namespace {

std::vector<int> with_child_signal(std::vector<int> signals) {
  signals.push_back(SIGCHLD);
  return signals;
}

/// Makes writing to a closed pipe an error instead of our end: a reader of our output may go, and
/// the run matters more.
class IgnoredPipeSignal {
 public:
  IgnoredPipeSignal() : before_(::signal(SIGPIPE, SIG_IGN)) {}
  IgnoredPipeSignal(const IgnoredPipeSignal&) = delete;
  IgnoredPipeSignal& operator=(const IgnoredPipeSignal&) = delete;
  ~IgnoredPipeSignal() { ::signal(SIGPIPE, before_); }

 private:
  sighandler_t before_;
};

}  // namespace

Supervisor::Supervisor(std::vector<int> signals, bool quiet)
    : signals_(with_child_signal(std::move(signals))),
      console_(STDOUT_FILENO, STDERR_FILENO),
      quiet_(quiet) {}

int Supervisor::run(const RestartRules& rules, std::int64_t death_ns, const MakeAttempt& attempt) {
  const IgnoredPipeSignal ignored;
  AttemptPlan plan{.restart = 0, .death_ns = death_ns};
  RestartHistory history;
  while (true) {
    const AttemptReport report = make(attempt, plan);
    const NextAttempt next = next_attempt(rules, history, report.end);
    history = next.history;
    report_failure(report, next, rules.most);
    if (!next.starts) {
      drain();
      return next.code;
    }
    plan = {.restart = history.restarts, .death_ns = report.death_ns};
  }
}

AttemptReport Supervisor::make(const MakeAttempt& attempt, const AttemptPlan& plan) {
  try {
    return attempt(plan);
  } catch (...) {
    console_.flush();
    throw;
  }
}

void Supervisor::report_failure(const AttemptReport& report, const NextAttempt& next, int most) {
  if (report.failure.empty() || (next.starts && quiet_)) return;
  const std::string consequence =
      next.starts ? concat("restart ", next.history.restarts, " of ", most) : "the run failed";
  console_.write(Stream::kErrors, concat("lockstep: ", consequence, ": ", report.failure));
  if (next.reason.empty()) return;
  console_.write(Stream::kErrors, concat("lockstep: ", next.reason, "\n"));
}

/// Waits until all is read; a signal ends that, as nothing else is left to be done.
void Supervisor::drain() {
  const auto is_from_outside = [](int signal) { return signal != SIGCHLD; };
  for (console_.flush(); !console_.empty(); console_.flush()) {
    std::vector<pollfd> waited{{signals_.descriptor(), POLLIN, 0}};
    console_.add_to(waited);
    ::poll(waited.data(), waited.size(), -1);
    const auto signals = signals_.read();
    if (std::any_of(signals.begin(), signals.end(), is_from_outside)) return;
  }
}

void Supervisor::say(const std::string& text) {
  if (!quiet_) console_.write(Stream::kErrors, concat("lockstep: ", text, "\n"));
}

}  // namespace lockstep::launch
