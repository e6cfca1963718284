#include "lockstep/launch/attempt.h"

#include <algorithm>
#include <signal.h>
#include <sys/epoll.h>

#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/core/text.h"
#include "lockstep/launch/child_process.h"
#include "lockstep/launch/patience.h"
#include "lockstep/liveness/progress_page.h"

namespace lockstep::launch {
namespace {

// Between two checks whether the remaining processes have saved.
constexpr std::chrono::milliseconds kSavingLook{5};

constexpr int kSignalEvent = -1;

}  // namespace

// Note [Who failed first]
// All process descriptors sit in one epoll set. The kernel appends to its ready list when a process
// ends, so that even processes that ended between two looks come out in the order of their ends.
Attempt::Attempt(Supervisor& supervisor, const EndingRules& rules)
    : supervisor_(supervisor),
      rules_(rules),
      guardian_(supervisor.mark()),
      events_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!events_) throw_errno("launch: watch processes");
  add_event(supervisor_.signals().descriptor(), kSignalEvent);
}

void Attempt::take(std::vector<Worker> workers) {
  workers_ = std::move(workers);
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    add_event(workers_[i].process->descriptor(), static_cast<int>(i));
  }
}

AttemptReport Attempt::run() {
  wake_ = on_wake();
  while (!finished()) step();
  return report();
}

void Attempt::add_event(int descriptor, int index) const {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = index;
  if (::epoll_ctl(events_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0)
    throw_errno("launch: watch");
}

void Attempt::step() {
  // What dead processes left in their pipes is little and is read at once: the next attempt need
  // not wait for a slow reader of our output.
  Console& console = supervisor_.console();
  const bool ended = running() == 0;
  const auto reads = [&] { return ended || console.has_room(); };
  std::vector<pollfd> waited{{events_.get(), POLLIN, 0}};
  console.add_to(waited);
  if (reads()) {
    for (const Worker& worker : workers_) worker.output.add_to(waited);
  }
  ::poll(waited.data(), waited.size(), milliseconds_to_wait());
  console.flush();
  for (Worker& worker : workers_) {
    if (reads()) worker.output.read(console);
  }
  take_events();
  wake_ = on_wake();
  if (deadline_ && Clock::now() >= *deadline_) pass_deadline();
}

int Attempt::milliseconds_to_wait() const {
  int wait = -1;
  for (const auto& moment : {deadline_, wake_}) {
    if (!moment) continue;
    const int left = patience::milliseconds_until(*moment);
    wait = wait < 0 ? left : std::min(wait, left);
  }
  return wait;
}

void Attempt::take_events() {
  epoll_event events[64];
  const int count = ::epoll_wait(events_.get(), events, 64, 0);
  for (int i = 0; i < count; ++i) {
    if (events[i].data.fd == kOutsideEvent) continue;  // on_wake() comes next
    if (events[i].data.fd != kSignalEvent)
      on_end(workers_[static_cast<std::size_t>(events[i].data.fd)]);
    else
      for (const int signal : supervisor_.signals().read()) on_signal(signal);
  }
}

void Attempt::on_end(Worker& worker) {
  if (worker.status) return;  // it was let go since its end was seen
  worker.status = worker.process->status();
  if (!worker.status) return;
  if (worker.verdict) worker.status = worker.verdict;
  ::epoll_ctl(events_.get(), EPOLL_CTL_DEL, worker.process->descriptor(), nullptr);
  const bool is_stop = this->is_stop(*worker.status);
  const bool is_news = !worker.verdict && !is_ordered_ && ending_ != Ending::kAsked;
  if (!worker.status->succeeded() && !is_stop && is_news) on_failure(worker);
  // Ranks stop together. One that was stopped alone, before it had met the others, leaves them
  // waiting for it.
  if (is_stop && ending_ == Ending::kNone && !deadline_)
    deadline_ = Clock::now() + patience::kTogether;
  if (running() == 0) clean_up();
}

void Attempt::on_failure(const Worker& worker) {
  failed_.push_back(&worker);
  if (ending_ != Ending::kNone) return;
  death_ns_ = monotonic_nanoseconds();
  on_first_failure(worker);
  // It may notice that its peer failed before we see that peer end.
  const bool lost_peers = worker.status->is(ExitCode::kPeersLost) && running() > 0;
  const auto patience =
      lost_peers ? std::max(rules_.for_own_end, patience::kForTheCause) : rules_.for_own_end;
  if (patience.count() == 0) return end_after_failure();
  ending_ = Ending::kAwaited;
  deadline_ = Clock::now() + patience;
}

void Attempt::give_up(std::size_t index) {
  Worker& worker = workers_[index];
  if (is_ending() || worker.status) return;
  worker.verdict = ExitStatus{.code = static_cast<int>(ExitCode::kPeersLost)};
  failed_.push_back(&worker);
  death_ns_ = monotonic_nanoseconds();
  on_first_failure(worker);
  worker.process->signal_group(SIGKILL);  // so that the others notice
  end_after_failure();
}

void Attempt::on_signal(int signal) {
  if (signal == SIGCHLD) return reap_strays(known());
  const bool is_first = !signal_;
  if (is_first) signal_ = signal;
  if (running() == 0) return;
  if (ending_ == Ending::kNone) {
    say(concat("passing ", signal_name(signal), " on to all ", rules_.members));
    return end_all(signal, rules_.grace_period);
  }
  if (signal == SIGHUP) return;  // a closed terminal may send it twice
  // They end already, and may be saving: that is what the signal asks for.
  if (is_first && !has_killed_)
    return say(concat(signal_name(signal), ": the ", rules_.members,
        " are ending; at another signal they are killed"));
  say(concat(signal_name(signal), ": killing all ", rules_.members));
  kill_all();
}

bool Attempt::saves_what_is_left(Clock::duration /*since_failure*/) const { return false; }

void Attempt::end_after_failure() {
  const auto now = Clock::now();
  if (!saving_since_) saving_since_ = now;
  if (running() > 0 && saves_what_is_left(now - *saving_since_)) {
    ending_ = Ending::kSaving;
    deadline_ = now + kSavingLook;
    return;
  }
  const auto grace = rules_.after_failure;
  end_all(grace.count() > 0 ? SIGTERM : SIGKILL, grace);
}

void Attempt::end_by_order(bool gently) {
  if (running() == 0 || ending_ == Ending::kAsked) return;
  is_ordered_ = failed_.empty();
  if (!gently) return end_after_failure();
  end_all(SIGTERM, rules_.grace_period);
}

void Attempt::end_all(int signal, Clock::duration grace) {
  ending_ = Ending::kAsked;
  deadline_ = Clock::now() + grace;
  for (const Worker& worker : workers_) worker.process->signal_group(signal);
}

void Attempt::pass_deadline() {
  if (running() == 0) {
    // A process out of our reach keeps these pipes open.
    for (Worker& worker : workers_) worker.output.close(supervisor_.console());
    return deadline_.reset();
  }
  if (has_killed_) {
    for (Worker& worker : workers_) let_go(worker);
    return;
  }
  if (ending_ == Ending::kAwaited || ending_ == Ending::kSaving) return end_after_failure();
  if (ending_ == Ending::kNone) return end_all(SIGTERM, rules_.grace_period);
  if (signal_ && failed_.empty()) {
    say(concat("the grace period is over: killing all ", rules_.members));
  }
  kill_all();
}

void Attempt::kill_all() {
  ending_ = Ending::kAsked;
  has_killed_ = true;
  deadline_ = Clock::now() + patience::kToDie;
  for (Worker& worker : workers_)
    if (!worker.process->signal_group(SIGKILL)) let_go(worker);
}

// A process that cannot be killed is a stray, which clean_up() names; it counts as killed.
void Attempt::let_go(Worker& worker) {
  if (worker.status) return;
  ::epoll_ctl(events_.get(), EPOLL_CTL_DEL, worker.process->descriptor(), nullptr);
  worker.process->leave();
  worker.status = worker.verdict.value_or(ExitStatus{.signal = SIGKILL});
  if (running() == 0) clean_up();
}

/// Ends what the processes left running, so that the pipes are closed and nothing stays behind.
void Attempt::clean_up() {
  for (const Worker& worker : workers_) worker.process->signal_group(SIGKILL);
  std::vector<std::string> left;
  for (const pid_t pid : kill_strays(known())) left.push_back(std::to_string(pid));
  if (!left.empty()) say(concat("cannot kill what is left running: pid ", joined(left)));
  deadline_ = Clock::now() + patience::kLastOutput;
}

bool Attempt::finished() const {
  const auto open = [](const Worker& worker) { return worker.output.open(); };
  return running() == 0 && std::none_of(workers_.begin(), workers_.end(), open);
}

std::vector<pid_t> Attempt::known() const {
  std::vector<pid_t> pids = supervisor_.spares().pids();
  pids.push_back(guardian_.pid());
  for (const Worker& worker : workers_) pids.push_back(worker.process->pid());
  return pids;
}

std::ptrdiff_t Attempt::running() const {
  return std::count_if(
      workers_.begin(), workers_.end(), [](const Worker& worker) { return !worker.status; });
}

// What an attempt came to: which end of a process is a failure, and which failure is the cause.

// Also a death by a signal that is not ours, after we passed a stop signal on: something else
// killed the rank, or the signal came before it could handle it. The others have saved what there
// is.
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

/// Returns a process that reported an error although it was asked to end.
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
