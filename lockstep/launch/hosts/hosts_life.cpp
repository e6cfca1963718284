#include "lockstep/launch/hosts/hosts_life.h"

#include <algorithm>

#include <poll.h>

#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/core/progress_page.h"
#include "lockstep/launch/strays.h"

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;

// Commands that lose a peer end by themselves, and say why, before they are told to.
constexpr milliseconds kForOwnEnd{1000};
constexpr milliseconds kAfterAsking{500};
// Output of processes that cannot be killed is waited for no longer.
constexpr milliseconds kLastOutput{1000};

constexpr int kStopped = static_cast<int>(ExitCode::kStopped);
constexpr int kPeersLost = static_cast<int>(ExitCode::kPeersLost);

}  // namespace

HostsLife::HostsLife(
    const HostsOptions& options, const HostsPlan& plan, const HostNetwork* network,
    const SignalReader& signals, Console& console, std::optional<Clock::time_point> strike)
    : options_(options),
      signals_(signals),
      console_(console),
      hosts_(start_hosts(options, plan, network, guardian_)),
      strike_(strike) {}

HostsReport HostsLife::run() {
  while (!finished()) step();
  return report();
}

void HostsLife::step() {
  wait_and_read();
  take_signals();
  look_for_ends();
  const auto now = Clock::now();
  if (strike_ && now >= *strike_) strike();
  if (deadline_ && now >= *deadline_) pass_deadline();
}

int HostsLife::milliseconds_to_wait() const {
  std::int64_t wait = -1;
  for (const auto& moment : {deadline_, strike_}) {
    if (!moment) continue;
    const auto left = std::chrono::ceil<milliseconds>(*moment - Clock::now()).count();
    wait = wait < 0 ? left : std::min(wait, left);
    wait = std::max<std::int64_t>(wait, 0);
  }
  return static_cast<int>(wait);
}

void HostsLife::wait_and_read() {
  std::vector<pollfd> waited{{signals_.descriptor(), POLLIN, 0}};
  for (const HostProcess& host : hosts_) {
    if (!host.status) waited.push_back({host.process->descriptor(), POLLIN, 0});
    if (console_.has_room()) host.output.add_to(waited);
  }
  console_.add_to(waited);
  ::poll(waited.data(), waited.size(), milliseconds_to_wait());
  console_.flush();
  for (HostProcess& host : hosts_) {
    if (console_.has_room()) host.output.read(console_);
  }
}

void HostsLife::look_for_ends() {
  for (HostProcess& host : hosts_) {
    if (host.status) continue;
    host.status = host.process->status();
    if (host.status) on_end(host);
  }
  if (all_ended() && !cleaned_) clean_up();
}

/// Notes a command that ended by itself and badly. One that stopped with a snapshot did as it was
/// asked to, and so will the others.
void HostsLife::on_end(HostProcess& host) {
  const bool fails = !host.status->succeeded() && host.status->result() != kStopped;
  const bool by_itself = end_ == End::kNone || end_ == End::kAwaited;
  if (!fails || !by_itself) return;
  failed_.push_back(&host);
  if (end_ == End::kAwaited) return;
  death_ns_ = monotonic_nanoseconds();
  end_ = End::kAwaited;
  deadline_ = Clock::now() + kForOwnEnd;
}

void HostsLife::take_signals() {
  for (const int signal : signals_.read()) on_signal(signal);
}

void HostsLife::on_signal(int signal) {
  if (signal == SIGCHLD) {
    std::vector<pid_t> known{guardian_.pid()};
    for (const HostProcess& host : hosts_) known.push_back(host.process->pid());
    return reap_strays(known);
  }
  const bool first = !signal_;
  if (first) signal_ = signal;
  if (all_ended()) return;
  if (first && end_ == End::kNone) {
    tell(concat("passing ", signal_name(signal), " on to all hosts"));
    end_ = End::kAsked;
    deadline_ = Clock::now() + options_.grace_period;
    return signal_all(signal);
  }
  if (signal == SIGHUP) return;  // a closed terminal may send it twice
  tell(concat(signal_name(signal), ": killing all hosts' commands"));
  end_ = End::kForced;
  deadline_.reset();
  signal_all(SIGKILL);
}

void HostsLife::pass_deadline() {
  if (all_ended()) {
    for (HostProcess& host : hosts_) host.output.close(console_);
    return deadline_.reset();
  }
  if (end_ == End::kAwaited) {
    end_ = End::kAsked;
    deadline_ = Clock::now() + kAfterAsking;
    return signal_all(SIGTERM);
  }
  end_ = End::kForced;
  deadline_.reset();
  signal_all(SIGKILL);
}

void HostsLife::strike() {
  strike_.reset();
  struck_ = true;
  const HostProcess& host = hosts_[static_cast<std::size_t>(options_.drill->host)];
  if (host.status) return;
  tell(concat("killing host ", host.host, ", as --kill asks"));
  host.process->signal_group(SIGKILL);
}

void HostsLife::signal_all(int signal) {
  for (const HostProcess& host : hosts_) {
    if (!host.status) host.process->signal_group(signal);
  }
}

/// Ends what is left of them, so that the pipes are closed and the next life meets nobody.
void HostsLife::clean_up() {
  cleaned_ = true;
  std::vector<pid_t> known{guardian_.pid()};
  for (const HostProcess& host : hosts_) {
    host.process->signal_group(SIGKILL);
    known.push_back(host.process->pid());
  }
  kill_strays(known);
  deadline_ = Clock::now() + kLastOutput;
}

bool HostsLife::all_ended() const {
  return std::all_of(hosts_.begin(), hosts_.end(), [](const HostProcess& host) {
    return host.status.has_value();
  });
}

bool HostsLife::finished() const {
  return cleaned_ && std::none_of(hosts_.begin(), hosts_.end(), [](const HostProcess& host) {
           return host.output.open();
         });
}

/// Finds the host that failed first; one that only lost the others is none if there is another.
const HostProcess* HostsLife::cause() const {
  if (failed_.empty()) return nullptr;
  const auto found = std::find_if(failed_.begin(), failed_.end(), [](const HostProcess* host) {
    return host->status->result() != kPeersLost;
  });
  return found == failed_.end() ? failed_.front() : *found;
}

int HostsLife::code() const {
  if (const HostProcess* host = cause()) return host->status->result();
  bool stopped = false;
  for (const HostProcess& host : hosts_) {
    const int code = host.status->result();
    if (code != 0 && code != kStopped && signal_) return 128 + *signal_;
    stopped = stopped || code == kStopped;
  }
  return stopped ? kStopped : 0;
}

HostsReport HostsLife::report() const {
  HostsReport report;
  report.end = {.code = code(), .failure = {}, .signal = signal_, .step = {}};
  report.struck = struck_;
  const HostProcess* host = cause();
  if (host == nullptr) return report;
  report.end.failure = host->status;
  report.cause = concat("host ", host->host, " ", host->status->text());
  report.death_ns = death_ns_;
  return report;
}

void HostsLife::tell(const std::string& text) {
  if (!options_.quiet) console_.write(Stream::kErrors, concat("lockstep: ", text, "\n"));
}

}  // namespace lockstep::launch
