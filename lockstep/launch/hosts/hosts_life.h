#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/console.h"
#include "lockstep/launch/hosts/host_process.h"
#include "lockstep/launch/restart.h"
#include "lockstep/launch/signal_reader.h"

namespace lockstep::launch {

/// Is what is known when all commands have ended.
struct HostsReport {
  LifeEnd end;
  std::string cause;          ///< `host 1 exited with code 7`; empty: none failed
  std::int64_t death_ns = 0;  ///< when that was seen, on the monotonic clock
  bool struck = false;        ///< the drill was carried out
};

/// Is one life of the commands on all hosts, from their start to the end of all that they started.
class HostsLife {
 public:
  using Clock = std::chrono::steady_clock;

  /// Starts them; `strike` is when the drill's host is killed. Throws as start_hosts().
  HostsLife(
      const HostsOptions& options, const HostsPlan& plan, const HostNetwork* network,
      const SignalReader& signals, Console& console, std::optional<Clock::time_point> strike);

  /// Waits for the end. What was written has gone to the console when it returns.
  HostsReport run();

 private:
  /// Says how far the end of all has come, after a failure or a signal.
  enum class End { kNone, kAwaited, kAsked, kForced };

  void step();
  int milliseconds_to_wait() const;
  void wait_and_read();
  void look_for_ends();
  void on_end(HostProcess& host);
  void take_signals();
  void on_signal(int signal);
  void pass_deadline();
  void strike();
  void signal_all(int signal);
  void clean_up();
  bool all_ended() const;
  bool finished() const;
  HostsReport report() const;
  int code() const;
  const HostProcess* cause() const;
  void tell(const std::string& text);

  const HostsOptions& options_;
  const SignalReader& signals_;
  Console& console_;
  Guardian guardian_;
  std::vector<HostProcess> hosts_;
  std::vector<const HostProcess*> failed_;  // by themselves, first one first
  End end_ = End::kNone;
  std::optional<int> signal_;  // the first one that came from outside
  std::optional<Clock::time_point> deadline_;
  std::optional<Clock::time_point> strike_;
  std::int64_t death_ns_ = 0;
  bool struck_ = false;
  bool cleaned_ = false;
};

}  // namespace lockstep::launch
