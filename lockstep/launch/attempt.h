#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/ranks/worker.h"
#include "lockstep/launch/restart.h"
#include "lockstep/launch/supervisor.h"

namespace lockstep::launch {

/// The rules for ending the processes of a group.
struct EndingRules {
  std::string members;                         ///< what messages call them: `ranks`
  std::chrono::milliseconds grace_period;      ///< between a passed-on signal and SIGKILL
  std::chrono::milliseconds for_own_end{0};    ///< for the others, after a failure, before SIGTERM
  std::chrono::milliseconds after_failure{0};  ///< then, before SIGKILL; 0: SIGKILL at once
  /// A process that stopped with a snapshot did as it was asked, as will the others; one that then
  /// lost its peer was stopped, too.
  bool may_stop = false;
};

/// One attempt of a group, from its start to the end of all that its processes started.
///
/// The first process that fails ends all others. A process that only lost its peers is not the
/// cause if another failed by itself.
class Attempt {
 public:
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;
  virtual ~Attempt() = default;

  /// Waits for the end. What the processes wrote has gone to the console when it returns, though
  /// perhaps not yet to its reader.
  AttemptReport run();

 protected:
  using Clock = std::chrono::steady_clock;

  Attempt(Supervisor& supervisor, const EndingRules& rules);

  /// Takes over the processes; they are started under the guardian's watch.
  void take(std::vector<Worker> workers);

  const Guardian& guardian() const { return guardian_; }
  const std::vector<Worker>& workers() const { return workers_; }
  std::ptrdiff_t running() const;
  bool has_failed() const { return !failed_.empty(); }  ///< one of them, by itself
  bool is_ending() const { return ending_ != Ending::kNone; }
  void say(const std::string& text) { supervisor_.say(text); }

  /// Marks a running process as failed, with kPeersLost, and ends all.
  void give_up(std::size_t index);

  /// Has on_wake() called also when this descriptor becomes readable. Close it to stop that.
  void wake_by(int descriptor) const { add_event(descriptor, kOutsideEvent); }

  /// Ends all processes by request of other nodes, without counting it as a failure: as after a
  /// failure, or gently, with SIGTERM and the grace period.
  void end_by_order(bool gently);

 private:
  static constexpr int kOutsideEvent = -2;

  /// The progress of ending all processes, after a failure or a signal.
  enum class Ending { kNone, kAwaited, kSaving, kAsked };

  /// Records what is known only at the moment of the first failure.
  virtual void on_first_failure(const Worker& worker) = 0;
  /// Returns the lines that report the failure that ended the attempt.
  virtual std::string describe(const Worker& cause) = 0;
  virtual std::optional<std::int64_t> furthest_step() const = 0;
  /// Returns whether the remaining processes may go on for now after a failure, as they save what
  /// would be lost; called every few milliseconds.
  virtual bool saves_what_is_left(Clock::duration since_failure) const;
  /// Does what is due apart from events, and returns when to call it again.
  virtual std::optional<Clock::time_point> on_wake() = 0;

  void add_event(int descriptor, int index) const;
  void step();
  int milliseconds_to_wait() const;
  void take_events();
  void on_end(Worker& worker);
  void on_failure(const Worker& worker);
  void on_signal(int signal);
  void end_after_failure();
  void end_all(int signal, Clock::duration grace);
  void pass_deadline();
  void kill_all();
  void let_go(Worker& worker);
  void clean_up();
  bool finished() const;
  bool is_stop(const ExitStatus& status) const;
  bool is_stop_itself(const ExitStatus& status) const;
  std::vector<pid_t> known() const;
  const Worker* cause() const;
  const Worker* last_to_speak() const;
  AttemptReport report();
  int code() const;

  Supervisor& supervisor_;
  EndingRules rules_;
  Guardian guardian_;
  FileDescriptor events_;
  std::vector<Worker> workers_;
  std::vector<const Worker*> failed_;  // by themselves, first one first
  Ending ending_ = Ending::kNone;
  bool has_killed_ = false;
  bool is_ordered_ = false;    // to end
  std::optional<int> signal_;  // the first one that came from outside
  std::optional<Clock::time_point> deadline_;
  std::optional<Clock::time_point> wake_;
  std::optional<Clock::time_point> saving_since_;  // processes that are left may save
  std::int64_t death_ns_ = 0;
  Clock::time_point start_ = Clock::now();
};

}  // namespace lockstep::launch
