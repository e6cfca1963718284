#include "lockstep/launch/hosts/hosts.h"

#include <cerrno>
#include <optional>
#include <system_error>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "lockstep/launch/hosts/available.h"
#include "lockstep/launch/hosts/hosts_life.h"
#include "lockstep/launch/strays.h"

namespace lockstep::launch {
namespace {

using Clock = HostsLife::Clock;

std::optional<HostNetwork> network_of(const HostsOptions& options) {
  if (options.count == 0) return std::nullopt;
  const std::string& missing = hosts_missing();
  if (!missing.empty()) {
    throw std::system_error(EPERM, std::generic_category(), concat("hosts: ", missing));
  }
  return HostNetwork({.hosts = options.count, .rate = options.rate});
}

/// Makes our standard input one that ends when we do: with it the commands of real hosts end.
FileDescriptor hold_input_open() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_errno("hosts: make a pipe");
  const FileDescriptor reader(ends[0]);
  FileDescriptor writer(ends[1]);
  if (::dup2(reader.get(), STDIN_FILENO) < 0) throw_errno("hosts: set up the standard input");
  return writer;
}

std::optional<Clock::time_point> moment_of(const std::optional<Drill>& drill) {
  if (!drill) return std::nullopt;
  const std::chrono::duration<double> seconds(drill->seconds);
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(seconds);
}

/// Has the hosts' commands live until they have done their work or are given up.
class HostsRun {
 public:
  explicit HostsRun(const HostsOptions& options)
      : options_(options), network_(network_of(options)), strike_(moment_of(options.drill)) {
    if (!network_) input_ = hold_input_open();
  }

  int run() {
    HostsPlan plan;
    RestartHistory history;
    while (true) {
      const HostsReport report = live(plan);
      if (report.struck) strike_.reset();
      // Codes of ours say whether it is of use.
      const RestartRules rules{
          .most = options_.max_restarts, .lockstep_codes = options_.program == "lockstep"};
      const NextLife next = next_life(rules, history, report.end);
      history = next.history;
      tell(report, next);
      if (!next.starts) return next.code;
      plan = {.restart = history.restarts, .death_ns = report.death_ns};
    }
  }

 private:
  HostsReport live(const HostsPlan& plan) {
    HostsLife life(options_, plan, network_ ? &*network_ : nullptr, signals_, console_, strike_);
    HostsReport report = life.run();
    drain();
    return report;
  }

  void tell(const HostsReport& report, const NextLife& next) {
    if (report.cause.empty() || (next.starts && options_.quiet)) return;
    const std::string consequence =
        next.starts ? concat("restart ", next.history.restarts, " of ", options_.max_restarts)
                    : "the run failed";
    console_.write(Stream::kErrors, concat("lockstep: ", consequence, ": ", report.cause, "\n"));
    if (!next.reason.empty()) {
      console_.write(Stream::kErrors, concat("lockstep: ", next.reason, "\n"));
    }
    drain();
  }

  /// Waits until all is read by who reads our output.
  void drain() {
    for (console_.flush(); !console_.empty(); console_.flush()) {
      std::vector<pollfd> waited;
      console_.add_to(waited);
      ::poll(waited.data(), waited.size(), 1000);
    }
  }

  const HostsOptions& options_;
  const Subreaper subreaper_;
  const SignalReader signals_{{SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGCHLD}};
  Console console_{STDOUT_FILENO, STDERR_FILENO};
  FileDescriptor input_;
  std::optional<HostNetwork> network_;
  std::optional<Clock::time_point> strike_;
};

}  // namespace

int run_hosts(const HostsOptions& options) {
  check_options(options);
  ::signal(SIGPIPE, SIG_IGN);  // who reads our output may go; the run matters more
  return HostsRun(options).run();
}

}  // namespace lockstep::launch
