#include "lockstep/launch/launcher.h"

#include <algorithm>
#include <climits>

#include <sys/epoll.h>
#include <unistd.h>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/launch/console.h"
#include "lockstep/launch/failure_report.h"
#include "lockstep/launch/port.h"
#include "lockstep/launch/program_path.h"
#include "lockstep/launch/signal_reader.h"
#include "lockstep/launch/strays.h"
#include "lockstep/launch/worker.h"

namespace lockstep::launch {
namespace {

using Clock = std::chrono::steady_clock;

// After a failure the others get this long to end by SIGTERM: all must be over within a second.
constexpr auto kGraceAfterFailure = std::chrono::milliseconds(500);

// Output of processes that cannot be killed (stuck in the kernel) is waited for no longer.
constexpr auto kLastOutput = std::chrono::seconds(1);

constexpr int kSignalEvent = -1;

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  ::gethostname(name, HOST_NAME_MAX);
  return name;
}

std::optional<ReservedPort> reserve_port(const LaunchOptions& options) {
  if (options.node_rank != 0) return std::nullopt;
  return options.master_port == 0 ? ReservedPort() : ReservedPort(options.master_port);
}

std::vector<int> with_child_signal(std::vector<int> signals) {
  signals.push_back(SIGCHLD);
  return signals;
}

// Note [Who failed first]
// All process descriptors sit in one epoll set. The kernel appends to its ready list when a process
// ends, so that even processes that ended between two looks come out in the order of their ends.
class Run {
 public:
  explicit Run(const LaunchOptions& options)
      : options_(options),
        signals_(with_child_signal(options.signals)),
        port_(reserve_port(options)),
        oom_before_(oom_kills()),
        events_(::epoll_create1(EPOLL_CLOEXEC)),
        workers_(start_workers(options, port_ ? port_->number() : options.master_port, guardian_)) {
    if (!events_) throw_errno("launch: watch processes");
    add_event(signals_.descriptor(), kSignalEvent);
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      add_event(workers_[i].process->descriptor(), static_cast<int>(i));
    }
    tell_start();
  }

  int run() {
    while (!finished()) step();
    console_.flush();
    return result();
  }

 private:
  void add_event(int descriptor, int index) const {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = index;
    if (::epoll_ctl(events_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0)
      throw_errno("launch: watch");
  }

  void step() {
    std::vector<pollfd> waited{{events_.get(), POLLIN, 0}};
    console_.add_to(waited);
    if (console_.has_room()) {
      for (const Worker& worker : workers_) worker.output.add_to(waited);
    }
    ::poll(waited.data(), waited.size(), milliseconds_to_deadline());
    console_.flush();
    for (Worker& worker : workers_) {
      if (console_.has_room()) worker.output.read(console_);
    }
    take_events();
    if (deadline_ && Clock::now() >= *deadline_) pass_deadline();
  }

  int milliseconds_to_deadline() const {
    if (!deadline_) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - Clock::now());
    return static_cast<int>(std::max<std::int64_t>(0, left.count()));
  }

  void take_events() {
    epoll_event events[64];
    const int count = ::epoll_wait(events_.get(), events, 64, 0);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.fd == kSignalEvent) {
        for (const int signal : signals_.read()) on_signal(signal);
      } else {
        on_end(workers_[static_cast<std::size_t>(events[i].data.fd)]);
      }
    }
  }

  void on_end(Worker& worker) {
    worker.status = worker.process->status();
    if (!worker.status) return;
    ::epoll_ctl(events_.get(), EPOLL_CTL_DEL, worker.process->descriptor(), nullptr);
    if (!worker.status->succeeded() && !ending_) fail(worker);
    if (all_ended()) clean_up();
  }

  void fail(const Worker& worker) {
    const OomKills now = oom_kills();
    failure_.emplace();
    failure_->rank = worker.rank;
    failure_->world_size = options_.nodes * options_.workers;
    failure_->nodes = options_.nodes;
    failure_->host = host_name();
    failure_->pid = worker.process->pid();
    failure_->status = *worker.status;
    failure_->oom.in_cgroup = now.in_cgroup - oom_before_.in_cgroup;
    failure_->oom.on_host = now.on_host - oom_before_.on_host;
    failed_ = &worker;
    if (running() > 0) tell(concat(failure_headline(*failure_), "; ending ", rest_in_words()));
    end_all(SIGTERM, kGraceAfterFailure);
  }

  std::string rest_in_words() const {
    const auto rest = running();
    return rest == 1 ? "the other rank" : concat("the other ", rest, " ranks");
  }

  void on_signal(int signal) {
    if (signal == SIGCHLD) return reap_strays(known());
    if (all_ended()) {
      abandoned_ = true;  // only a reader that does not read keeps us
      return;
    }
    const bool second =
        ending_.has_value() && signal != SIGHUP;  // a closed terminal may send SIGHUP twice
    if (second) {
      tell(concat(signal_name(signal), ": killing all ranks"));
      return kill_all();
    }
    if (ending_) return;
    signal_ = signal;
    tell(concat("passing ", signal_name(signal), " on to all ranks"));
    end_all(signal, options_.grace_period);
  }

  void end_all(int signal, Clock::duration grace) {
    ending_ = signal;
    deadline_ = Clock::now() + grace;
    for (const Worker& worker : workers_) worker.process->signal_group(signal);
  }

  void pass_deadline() {
    if (all_ended()) return close_pipes();
    if (signal_) tell("the grace period is over: killing all ranks");
    kill_all();
  }

  /// Gives up pipes that somebody out of our reach keeps open; not those that wait for a slow
  /// reader of our output.
  void close_pipes() {
    deadline_ = Clock::now() + kLastOutput;
    if (!console_.has_room()) return;
    for (Worker& worker : workers_) worker.output.close(console_);
    deadline_.reset();
  }

  void kill_all() {
    for (const Worker& worker : workers_) worker.process->signal_group(SIGKILL);
    deadline_.reset();
    if (all_ended()) clean_up();
  }

  /// Ends what the workers left running, so that the pipes are closed and nothing stays behind.
  void clean_up() {
    for (const Worker& worker : workers_) worker.process->signal_group(SIGKILL);
    kill_strays(known());
    deadline_ = Clock::now() + kLastOutput;
  }

  std::vector<pid_t> known() const {
    std::vector<pid_t> pids{guardian_.pid()};
    for (const Worker& worker : workers_) pids.push_back(worker.process->pid());
    return pids;
  }

  std::ptrdiff_t running() const {
    return std::count_if(
        workers_.begin(), workers_.end(), [](const Worker& worker) { return !worker.status; });
  }

  bool all_ended() const { return running() == 0; }

  bool finished() {
    if (!all_ended()) return false;
    if (abandoned_) return true;
    const auto open = [](const Worker& worker) { return worker.output.open(); };
    if (std::any_of(workers_.begin(), workers_.end(), open)) return false;
    if (failed_ != nullptr) report();
    return console_.empty();
  }

  void report() {
    failure_->message = failed_->error_file.message();
    failure_->last_lines = failed_->output.last_lines();
    failure_->log = failed_->log;
    console_.write(Stream::kErrors, failure_report(*failure_));
    failed_ = nullptr;
  }

  int result() const {
    if (failure_) return failure_->status.result();
    if (!signal_) return 0;
    constexpr int kStopped = static_cast<int>(ExitCode::kStopped);
    bool stopped = false;
    for (const Worker& worker : workers_) {
      const int code = worker.status->result();
      if (code != 0 && code != kStopped) return 128 + *signal_;
      stopped = stopped || code == kStopped;
    }
    return stopped ? kStopped : 0;
  }

  void tell_start() {
    if (!options_.verbose) return;
    for (const Worker& worker : workers_) {
      tell(concat("rank ", worker.rank, " is pid ", worker.process->pid()));
    }
  }

  void tell(const std::string& text) {
    if (options_.quiet) return;
    console_.write(Stream::kErrors, "lockstep: " + text + "\n");
  }

  const LaunchOptions& options_;
  Subreaper subreaper_;
  SignalReader signals_;
  std::optional<ReservedPort> port_;
  Guardian guardian_;
  OomKills oom_before_;
  Console console_{STDOUT_FILENO, STDERR_FILENO};
  FileDescriptor events_;
  std::vector<Worker> workers_;
  std::optional<int> ending_;  // the signal with which the end began
  std::optional<int> signal_;  // the one that came from outside
  std::optional<Clock::time_point> deadline_;
  std::optional<Failure> failure_;
  const Worker* failed_ = nullptr;
  bool abandoned_ = false;
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
  return Run(options).run();
}

}  // namespace lockstep::launch
