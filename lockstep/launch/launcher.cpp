#include <algorithm>
#include <climits>
#include <iomanip>
#include <sstream>
#include <unistd.h>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/progress_page.h"
#include "lockstep/launch/attempt.h"
#include "lockstep/launch/hang/rank_watch.h"
#include "lockstep/launch/launch_options.h"
#include "lockstep/launch/port.h"
#include "lockstep/launch/rank_attempt.h"

namespace lockstep::launch {
namespace {

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  ::gethostname(name, HOST_NAME_MAX);
  return name;
}

EndingRules ending_rules(const LaunchOptions& options) {
  return {.members = "ranks",
      .grace_period = options.grace_period,
      .after_failure = options.grace_after_failure,
      .may_stop = options.lockstep_codes};
}

/// One attempt of this node's ranks.
class RankAttempt : public Attempt {
 public:
  RankAttempt(Supervisor& supervisor, const LaunchOptions& options, const AttemptPlan& plan,
      int master_port, Outside* outside)
      : Attempt(supervisor, ending_rules(options)),
        options_(options),
        plan_(plan),
        outside_(outside),
        progress_(options.workers),
        oom_before_(oom_kills()),
        first_step_awaited_(plan.restart > 0),
        watch_(options.hang_timeout, progress_, static_cast<std::size_t>(options.workers)) {
    take(start_ranks(options, {plan, master_port, progress_.path()}, guardian()));
    if (options_.verbose) say_pids();
    if (outside_ != nullptr && outside_->descriptor() >= 0) wake_by(outside_->descriptor());
  }

 private:
  void say_pids() {
    for (const Worker& worker : workers()) {
      say(concat("rank ", worker.number, " is pid ", worker.process->pid()));
    }
  }

  void on_first_failure(const Worker& worker) override {
    const OomKills now = oom_kills();
    name(worker);
    failure_.oom.in_cgroup = now.in_cgroup - oom_before_.in_cgroup;
    failure_.oom.on_host = now.on_host - oom_before_.on_host;
    if (outside_ != nullptr && has_failed()) outside_->failed(failure_headline(failure_));
    const auto rest = running();
    if (rest == 0 || !options_.verbose) return;
    const std::string others = rest == 1 ? "the other rank" : concat("the other ", rest, " ranks");
    say(concat(failure_headline(failure_), "; ending ", others));
  }

  void name(const Worker& worker) {
    failure_.rank = worker.number;
    failure_.world_size = options_.world_size();
    failure_.nodes = options_.nodes;
    failure_.host = host_name();
    failure_.pid = worker.process->pid();
    failure_.status = worker.verdict ? *worker.verdict : *worker.status;
  }

  std::string describe(const Worker& cause) override {
    name(cause);
    failure_.message = cause.message();
    failure_.last_lines = cause.output.last_lines();
    failure_.log = cause.log;
    failure_.message_log = cause.message_log;
    return failure_report(failure_);
  }

  std::optional<std::int64_t> furthest_step() const override { return progress_.furthest_step(); }

  std::optional<Clock::time_point> on_wake() override {
    std::vector<Clock::time_point> due;
    if (const auto moment = look_for_first_step()) due.push_back(*moment);
    if (const auto moment = look_for_hang()) due.push_back(*moment);
    if (outside_ != nullptr) {
      obey(outside_->look());
      due.push_back(outside_->due());
    }
    return due.empty() ? std::nullopt : std::optional(*std::min_element(due.begin(), due.end()));
  }

  void obey(EndOrder order) {
    if (order == EndOrder::kHangs && stall_ == Stall::kWaits) call_hang();
    if (order == EndOrder::kGently || order == EndOrder::kAtOnce)
      end_by_order(order == EndOrder::kGently);
  }

  // Where launchers of several nodes know nothing of each other, ranks that wait may do so for one
  // of another node that is at work.
  std::optional<Clock::time_point> look_for_hang() {
    if (is_ending() || running() == 0) return std::nullopt;
    stall_ = watch_.look(workers());
    const bool waits = stall_ == Stall::kWaits;
    const bool is_alone = outside_ == nullptr && options_.nodes == 1;
    if (outside_ != nullptr) outside_->waits(waits ? watch_.sights() : std::vector<RankSight>());
    if (stall_ == Stall::kHangs || (waits && is_alone)) call_hang();
    return is_ending() ? std::nullopt : watch_.due();
  }

  void call_hang() {
    const HangReport report = watch_.report(workers());
    failure_.hang = Hang{.what = report.what, .others = report.others};
    if (outside_ != nullptr && !outside_->others().empty())
      failure_.hang->others += concat(report.others.empty() ? "" : "; ", outside_->others());
    for (std::size_t i = 0; i < report.stacks.size(); ++i)
      if (!report.stacks[i].empty()) keep_stacks(i, report);
    give_up(report.rank);
  }

  // Without a folder for logs, of the main threads alone.
  void keep_stacks(std::size_t place, const HangReport& report) {
    const Worker& worker = workers()[place];
    const auto& stacks = report.stacks[place];
    const std::string log = keep_stack(options_.output, worker.number, plan_.restart, stacks);
    if (place == report.rank) {
      failure_.hang->frames = stacks.front().frames;
      failure_.hang->log = log;
    }
    if (log.empty()) say(concat("rank ", worker.number, " is at\n", stack_text({stacks.front()})));
  }

  /// Reports the first step after a restart. Nothing wakes us for it: the page has its time, only
  /// the report comes later.
  std::optional<Clock::time_point> look_for_first_step() {
    using std::chrono::milliseconds;
    if (!first_step_awaited_) return std::nullopt;
    if (const auto first = progress_.first_step_ns()) {
      first_step_awaited_ = false;
      say_first_step(static_cast<double>(*first - plan_.death_ns) * 1e-9);
      return std::nullopt;
    }
    const auto now = Clock::now();
    return now +
           std::clamp<Clock::duration>((now - start_) / 8, milliseconds(10), milliseconds(1000));
  }

  void say_first_step(double seconds) {
    std::ostringstream text;
    text << "restart " << plan_.restart << " of " << options_.max_restarts << ": training resumed "
         << std::fixed << std::setprecision(1) << seconds << " s after the failure";
    say(text.str());
  }

  const LaunchOptions& options_;
  AttemptPlan plan_;
  Outside* outside_;
  SharedProgress progress_;
  OomKills oom_before_;
  Failure failure_;
  Clock::time_point start_ = Clock::now();
  bool first_step_awaited_;
  RankWatch watch_;
  Stall stall_ = Stall::kNone;
};

/// The port on which rank 0 is to listen.
class MasterPort {
 public:
  explicit MasterPort(const LaunchOptions& options) : given_(options.master_port) {
    if (options.node_rank != 0) return;
    port_ = given_ == 0 ? ReservedPort() : ReservedPort(given_);
  }

  int number() const { return port_ ? port_->number() : given_; }

  /// Takes another one, unless it was given: there a new group cannot meet a process of the old
  /// one.
  void renew() {
    if (!port_ || given_ != 0) return;
    ReservedPort fresh;  // while the old one is still held, so that it is another
    port_ = std::move(fresh);
  }

 private:
  int given_;
  std::optional<ReservedPort> port_;
};

}  // namespace

AttemptReport run_ranks_once(Supervisor& supervisor, const LaunchOptions& options,
    const AttemptPlan& plan, int master_port, Outside* outside) {
  return RankAttempt(supervisor, options, plan, master_port, outside).run();
}

int launch(const LaunchOptions& options) {
  check_options(options);
  find_program(options.program, system_variable("PATH"));
  Supervisor supervisor(options.signals, options.quiet);
  MasterPort port(options);
  const RestartRules rules{.most = options.max_restarts, .lockstep_codes = options.lockstep_codes};
  return supervisor.run(rules, options.death_ns, [&](const AttemptPlan& plan) {
    if (plan.restart > 0) port.renew();
    return run_ranks_once(supervisor, options, plan, port.number(), nullptr);
  });
}

}  // namespace lockstep::launch
