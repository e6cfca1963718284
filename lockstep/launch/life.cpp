#include "lockstep/launch/life.h"

#include <algorithm>
#include <climits>
#include <sstream>

#include <sys/epoll.h>
#include <unistd.h>

#include "lockstep/core/error.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/launch/strays.h"

namespace lockstep::launch {
namespace {

// Output of processes that cannot be killed (stuck in the kernel) is waited for no longer.
constexpr auto kLastOutput = std::chrono::seconds(1);

constexpr int kSignalEvent = -1;
constexpr int kStopped = static_cast<int>(ExitCode::kStopped);

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  ::gethostname(name, HOST_NAME_MAX);
  return name;
}

LifePlan with_progress(LifePlan plan, const SharedProgress& progress) {
  plan.progress = progress.path();
  return plan;
}

}  // namespace

// Note [Who failed first]
// All process descriptors sit in one epoll set. The kernel appends to its ready list when a process
// ends, so that even processes that ended between two looks come out in the order of their ends.
Life::Life(
    const LaunchOptions& options, const LifePlan& plan, const SignalReader& signals,
    Console& console)
    : options_(options),
      signals_(signals),
      console_(console),
      progress_(options.workers),
      plan_(with_progress(plan, progress_)),
      oom_before_(oom_kills()),
      events_(::epoll_create1(EPOLL_CLOEXEC)),
      workers_(start_workers(options, plan_, guardian_)),
      first_step_awaited_(plan.restart > 0) {
  if (!events_) throw_errno("launch: watch processes");
  add_event(signals_.descriptor(), kSignalEvent);
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    add_event(workers_[i].process->descriptor(), static_cast<int>(i));
  }
  tell_start();
}

LifeReport Life::run() {
  while (!finished()) step();
  return report();
}

void Life::add_event(int descriptor, int index) const {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = index;
  if (::epoll_ctl(events_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0)
    throw_errno("launch: watch");
}

void Life::step() {
  // What dead workers left in their pipes is little and is read at once: the next life need not
  // wait for a slow reader of our output.
  const bool ended = all_ended();
  const auto reads = [&] { return ended || console_.has_room(); };
  std::vector<pollfd> waited{{events_.get(), POLLIN, 0}};
  console_.add_to(waited);
  if (reads()) {
    for (const Worker& worker : workers_) worker.output.add_to(waited);
  }
  ::poll(waited.data(), waited.size(), milliseconds_to_wait());
  console_.flush();
  for (Worker& worker : workers_) {
    if (reads()) worker.output.read(console_);
  }
  take_events();
  look_for_first_step();
  if (deadline_ && Clock::now() >= *deadline_) pass_deadline();
}

int Life::milliseconds_to_wait() const {
  using std::chrono::milliseconds;
  std::int64_t wait = -1;
  if (deadline_) {
    wait = std::max<std::int64_t>(
        0, std::chrono::ceil<milliseconds>(*deadline_ - Clock::now()).count());
  }
  if (!first_step_awaited_) return static_cast<int>(wait);
  // Nobody wakes us for it. The page knows the time; only our word comes that much later.
  const auto age = std::chrono::duration_cast<milliseconds>(Clock::now() - start_).count();
  const std::int64_t look = std::clamp<std::int64_t>(age / 8, 10, 1000);
  return static_cast<int>(wait < 0 ? look : std::min(wait, look));
}

void Life::take_events() {
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

/// A rank of ours that stopped with a snapshot did what it was asked to, and so will the others.
bool Life::is_a_failure(const ExitStatus& status) const {
  if (status.succeeded()) return false;
  return !options_.lockstep_codes || status.result() != kStopped;
}

void Life::on_end(Worker& worker) {
  worker.status = worker.process->status();
  if (!worker.status) return;
  ::epoll_ctl(events_.get(), EPOLL_CTL_DEL, worker.process->descriptor(), nullptr);
  if (is_a_failure(*worker.status) && !ending_) fail(worker);
  if (all_ended()) clean_up();
}

void Life::fail(const Worker& worker) {
  death_ns_ = monotonic_nanoseconds();
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
  const auto grace = options_.grace_after_failure;
  end_all(grace.count() > 0 ? SIGTERM : SIGKILL, grace);
}

std::string Life::rest_in_words() const {
  const auto rest = running();
  return rest == 1 ? "the other rank" : concat("the other ", rest, " ranks");
}

void Life::on_signal(int signal) {
  if (signal == SIGCHLD) return reap_strays(known());
  const bool first = !signal_;
  if (first) signal_ = signal;
  if (all_ended()) return;
  if (!ending_) {
    tell(concat("passing ", signal_name(signal), " on to all ranks"));
    return end_all(signal, options_.grace_period);
  }
  if (signal == SIGHUP) return;  // a closed terminal may send it twice
  tell(concat(signal_name(signal), ": killing all ranks"));
  kill_all();
}

void Life::end_all(int signal, Clock::duration grace) {
  ending_ = signal;
  deadline_ = Clock::now() + grace;
  for (const Worker& worker : workers_) worker.process->signal_group(signal);
}

void Life::pass_deadline() {
  if (all_ended()) {
    // Somebody out of our reach keeps these pipes open.
    for (Worker& worker : workers_) worker.output.close(console_);
    return deadline_.reset();
  }
  if (signal_ && !failure_) tell("the grace period is over: killing all ranks");
  kill_all();
}

void Life::kill_all() {
  for (const Worker& worker : workers_) worker.process->signal_group(SIGKILL);
  deadline_.reset();
}

/// Ends what the workers left running, so that the pipes are closed and nothing stays behind.
void Life::clean_up() {
  for (const Worker& worker : workers_) worker.process->signal_group(SIGKILL);
  kill_strays(known());
  deadline_ = Clock::now() + kLastOutput;
}

void Life::look_for_first_step() {
  if (!first_step_awaited_) return;
  const auto first = progress_.first_step_ns();
  if (!first) return;
  first_step_awaited_ = false;
  const double seconds = static_cast<double>(*first - plan_.death_ns) * 1e-9;
  std::ostringstream text;
  text.precision(1);
  text << std::fixed << "restart " << plan_.restart << " of " << options_.max_restarts
       << ": training went on " << seconds << " s after the death";
  tell(text.str());
}

bool Life::finished() {
  if (!all_ended()) return false;
  const auto open = [](const Worker& worker) { return worker.output.open(); };
  return std::none_of(workers_.begin(), workers_.end(), open);
}

std::vector<pid_t> Life::known() const {
  std::vector<pid_t> pids{guardian_.pid()};
  for (const Worker& worker : workers_) pids.push_back(worker.process->pid());
  return pids;
}

std::ptrdiff_t Life::running() const {
  return std::count_if(
      workers_.begin(), workers_.end(), [](const Worker& worker) { return !worker.status; });
}

LifeReport Life::report() {
  look_for_first_step();
  LifeReport report;
  report.end = {
      .code = code(), .failure = {}, .signal = signal_, .step = progress_.furthest_step()};
  if (!failure_) return report;
  failure_->message = failed_->error_file.message();
  failure_->last_lines = failed_->output.last_lines();
  failure_->log = failed_->log;
  report.end.failure = failure_->status;
  report.failure = failure_;
  report.death_ns = death_ns_;
  return report;
}

int Life::code() const {
  if (failure_) return failure_->status.result();
  bool stopped = false;
  for (const Worker& worker : workers_) {
    const int code = worker.status->result();
    if (code != 0 && code != kStopped && signal_) return 128 + *signal_;
    stopped = stopped || code == kStopped;
  }
  return stopped ? kStopped : 0;
}

void Life::tell_start() {
  if (!options_.verbose) return;
  for (const Worker& worker : workers_) {
    tell(concat("rank ", worker.rank, " is pid ", worker.process->pid()));
  }
}

void Life::tell(const std::string& text) {
  if (options_.quiet) return;
  console_.write(Stream::kErrors, "lockstep: " + text + "\n");
}

}  // namespace lockstep::launch
