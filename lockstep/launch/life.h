#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/progress_page.h"
#include "lockstep/launch/console.h"
#include "lockstep/launch/failure_report.h"
#include "lockstep/launch/restart.h"
#include "lockstep/launch/signal_reader.h"
#include "lockstep/launch/worker.h"

namespace lockstep::launch {

/// Is what is known when a life is over.
struct LifeReport {
  LifeEnd end;
  std::optional<Failure> failure;  ///< of the worker that failed first
  std::int64_t death_ns = 0;       ///< when that was seen, on the monotonic clock
};

/// Is one life of a group of workers, from its start to the end of all that they started.
class Life {
 public:
  /// Starts the workers. Throws std::system_error; none is left then.
  Life(
      const LaunchOptions& options, const LifePlan& plan, const SignalReader& signals,
      Console& console);

  /// Waits for the end. What the workers wrote has gone to the console when it returns, though not
  /// all of that to its reader.
  LifeReport run();

 private:
  using Clock = std::chrono::steady_clock;

  void add_event(int descriptor, int index) const;
  void step();
  int milliseconds_to_wait() const;
  void take_events();
  void on_end(Worker& worker);
  void fail(const Worker& worker);
  void on_signal(int signal);
  void end_all(int signal, Clock::duration grace);
  void pass_deadline();
  void kill_all();
  void clean_up();
  void look_for_first_step();
  bool finished();
  bool is_a_failure(const ExitStatus& status) const;
  std::vector<pid_t> known() const;
  std::ptrdiff_t running() const;
  bool all_ended() const { return running() == 0; }
  std::string rest_in_words() const;
  LifeReport report();
  int code() const;
  void tell_start();
  void tell(const std::string& text);

  const LaunchOptions& options_;
  const SignalReader& signals_;
  Console& console_;
  SharedProgress progress_;
  LifePlan plan_;
  Guardian guardian_;
  OomKills oom_before_;
  FileDescriptor events_;
  std::vector<Worker> workers_;
  Clock::time_point start_ = Clock::now();
  std::optional<int> ending_;  // the signal with which the end began
  std::optional<int> signal_;  // the first one that came from outside
  std::optional<Clock::time_point> deadline_;
  std::optional<Failure> failure_;
  const Worker* failed_ = nullptr;
  std::int64_t death_ns_ = 0;
  bool first_step_awaited_;
};

}  // namespace lockstep::launch
