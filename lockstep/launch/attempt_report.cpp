// What an attempt came to: which end of a process is a failure, and which failure is the cause.

#include <algorithm>
#include <signal.h>

#include "lockstep/core/exit_code.h"
#include "lockstep/launch/attempt.h"

namespace lockstep::launch {

// Also after we had passed a stop signal on, and not by our own hand: as of a rank that another
// hand killed, or that the signal met before it could answer. The others have saved what there is.
bool Attempt::is_stop_itself(const ExitStatus& status) const {
  const bool asks_to_stop = signal_ == SIGTERM || signal_ == SIGINT || signal_ == SIGUSR1;
  const bool is_lost = asks_to_stop && !has_killed_ && status.signal != 0;
  return rules_.may_stop && (is_lost || status.is(ExitCode::kStopped));
}

bool Attempt::is_stop(const ExitStatus& status) const {
  if (!rules_.may_stop || !status.is(ExitCode::kPeersLost)) return is_stop_itself(status);
  return std::any_of(workers_.begin(), workers_.end(),
      [this](const Worker& worker) { return worker.status && is_stop_itself(*worker.status); });
}

const Worker* Attempt::cause() const {
  if (failed_.empty()) return nullptr;
  const auto found = std::find_if(failed_.begin(), failed_.end(),
      [](const Worker* worker) { return !worker->status->is(ExitCode::kPeersLost); });
  return found == failed_.end() ? failed_.front() : *found;
}

/// Returns one that had something to say of its end, though it was asked to end.
const Worker* Attempt::last_to_speak() const {
  const auto found = std::find_if(workers_.begin(), workers_.end(), [&](const Worker& worker) {
    return !worker.status->succeeded() && !is_stop(*worker.status) && !worker.message().empty();
  });
  return found == workers_.end() ? nullptr : &*found;
}

AttemptReport Attempt::report() {
  for (Worker& worker : workers_) worker.log_message();
  AttemptReport report;
  report.end = {.code = code(),
      .failure = {},
      .signal = signal_,
      .step = furthest_step(),
      .seconds = std::chrono::duration<double>(Clock::now() - start_).count()};
  const Worker* const cause = this->cause();
  if (cause == nullptr) {
    if (is_ordered_) return report;
    if (const Worker* const speaker = last_to_speak()) {
      on_first_failure(*speaker);
      report.failure = describe(*speaker);
    }
    return report;
  }
  report.end.failure = cause->status;
  report.failure = describe(*cause);
  report.death_ns = death_ns_;
  return report;
}

int Attempt::code() const {
  if (const Worker* const failed = cause()) return failed->status->result();
  bool stopped = false;
  for (const Worker& worker : workers_) {
    const int code = worker.status->result();
    const bool is_stopped = worker.status->is(ExitCode::kStopped) || is_stop(*worker.status);
    if (code != 0 && !is_stopped && signal_) return 128 + *signal_;
    stopped = stopped || is_stopped;
  }
  return stopped ? static_cast<int>(ExitCode::kStopped) : 0;
}

}  // namespace lockstep::launch
