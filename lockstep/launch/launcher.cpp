#include "lockstep/launch/launcher.h"

#include <algorithm>

#include <poll.h>
#include <unistd.h>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/launch/life.h"
#include "lockstep/launch/port.h"
#include "lockstep/launch/program_path.h"
#include "lockstep/launch/strays.h"

namespace lockstep::launch {
namespace {

std::optional<ReservedPort> reserve_port(const LaunchOptions& options) {
  if (options.node_rank != 0) return std::nullopt;
  return options.master_port == 0 ? ReservedPort() : ReservedPort(options.master_port);
}

std::vector<int> with_child_signal(std::vector<int> signals) {
  signals.push_back(SIGCHLD);
  return signals;
}

/// Has a group live until it has done its work or is given up.
class Launcher {
 public:
  explicit Launcher(const LaunchOptions& options)
      : options_(options),
        signals_(with_child_signal(options.signals)),
        port_(reserve_port(options)) {}

  int run() {
    while (true) {
      const LifeReport report = live();
      const NextLife next = next_life(rules(), history_, report.end);
      history_ = next.history;
      tell(report, next);
      if (!next.starts) {
        drain();
        return next.code;
      }
      death_ns_ = report.death_ns;
      take_fresh_port();
    }
  }

 private:
  RestartRules rules() const {
    return {.most = options_.max_restarts, .lockstep_codes = options_.lockstep_codes};
  }

  // A signal that comes between two lives waits in the reader, and is passed on to the new workers.
  LifeReport live() {
    const LifePlan plan{
        .restart = history_.restarts,
        .death_ns = death_ns_,
        .master_port = port_ ? port_->number() : options_.master_port,
        .progress = {}};
    try {
      return Life(options_, plan, signals_, console_).run();
    } catch (...) {
      console_.flush();
      throw;
    }
  }

  void tell(const LifeReport& report, const NextLife& next) {
    if (!report.failure || (next.starts && options_.quiet)) return;
    const std::string consequence =
        next.starts ? concat("restart ", next.history.restarts, " of ", options_.max_restarts)
                    : "the run failed";
    console_.write(Stream::kErrors, failure_report(*report.failure, consequence));
    if (next.reason.empty()) return;
    console_.write(Stream::kErrors, concat("lockstep: ", next.reason, "\n"));
  }

  /// Lets the new group meet where no process of the old one can be.
  void take_fresh_port() {
    if (!port_ || options_.master_port != 0) return;
    ReservedPort fresh;  // while the old one is still held, so that it is another
    port_ = std::move(fresh);
  }

  /// Waits until all is read; a signal ends that, as nothing else is left to be done.
  void drain() {
    const auto is_from_outside = [](int signal) { return signal != SIGCHLD; };
    for (console_.flush(); !console_.empty(); console_.flush()) {
      std::vector<pollfd> waited{{signals_.descriptor(), POLLIN, 0}};
      console_.add_to(waited);
      ::poll(waited.data(), waited.size(), -1);
      const auto signals = signals_.read();
      if (std::any_of(signals.begin(), signals.end(), is_from_outside)) return;
    }
  }

  const LaunchOptions& options_;
  Subreaper subreaper_;
  SignalReader signals_;
  Console console_{STDOUT_FILENO, STDERR_FILENO};
  std::optional<ReservedPort> port_;
  RestartHistory history_;
  std::int64_t death_ns_ = options_.death_ns;  // of the life before
};

/// Makes writing to a closed pipe an error instead of our end.
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

int launch(const LaunchOptions& options) {
  check_options(options);
  find_program(options.program, environment("PATH").value_or(""));
  const IgnoredPipeSignal ignored;
  return Launcher(options).run();
}

}  // namespace lockstep::launch
