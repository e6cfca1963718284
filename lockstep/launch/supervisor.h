#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/child_process.h"
#include "lockstep/launch/output/worker_output.h"
#include "lockstep/launch/ranks/worker.h"
#include "lockstep/launch/restart.h"

namespace lockstep::launch {

/// The outcome of an attempt.
struct AttemptReport {
  AttemptEnd end;
  std::string failure;        ///< lines that say what failed; empty: nothing did
  std::int64_t death_ns = 0;  ///< when that was seen, on the monotonic clock
};

/// Starts a group, restarts it after failures as the rules allow, and reports the failures.
class Supervisor {
 public:
  using MakeAttempt = std::function<AttemptReport(const AttemptPlan&)>;

  /// Reads these signals from now on, and takes over processes whose parents have ended.
  Supervisor(std::vector<int> signals, bool quiet);

  /// Makes attempts, the first of which follows a failure at `death_ns` (0: none), and returns the
  /// run's exit code. A signal that comes between two attempts waits for the next one, but ends a
  /// pause before it, and the run.
  int run(const RestartRules& rules, std::int64_t death_ns, const MakeAttempt& attempt);

  const SignalReader& signals() const { return signals_; }
  Console& console() { return console_; }

  /// Returns the signals that have come from outside since the last call.
  std::vector<int> outside_signals() const;

  /// Waits for a signal, a reader of our output, another descriptor, or for so many milliseconds
  /// (-1: without an end). Writes what can be written, and returns the signals from outside.
  std::vector<int> wait(int milliseconds, int other = -1);

  /// Prints `lockstep: TEXT` on standard error, unless it is to be quiet.
  void say(const std::string& text);

  /// Prints the consequence, what failed, and the reason for the consequence, if there is one.
  void report_failure(
      const AttemptReport& report, const std::string& consequence, const std::string& reason);

  /// Waits until all output is read, or for a signal.
  void drain();

  bool is_quiet() const { return quiet_; }

  /// The processes that wait to become ranks, and the mark of all guardians.
  Spares& spares() { return spares_; }
  const Spares& spares() const { return spares_; }
  const std::string& mark() const { return mark_; }

 private:
  /// Ignores SIGPIPE: the reader of our output may go, and the run matters more.
  struct IgnoredPipeSignal {
    void (*before)(int) = ::signal(SIGPIPE, SIG_IGN);
    ~IgnoredPipeSignal() { ::signal(SIGPIPE, before); }
  };

  AttemptReport make(const MakeAttempt& attempt, const AttemptPlan& plan);
  std::optional<int> pause(std::chrono::seconds time);

  IgnoredPipeSignal pipe_signal_;  // first, as it covers all that the other members do
  Subreaper subreaper_;
  SignalReader signals_;
  Console console_;
  bool quiet_;
  std::string mark_ = Guardian::make_mark();
  Spares spares_;
};

}  // namespace lockstep::launch
