#include "lockstep/launch/ranks/rank_attempt.h"

#include <algorithm>
#include <utility>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/process.h"
#include "lockstep/launch/attempt.h"
#include "lockstep/launch/hang/rank_watch.h"
#include "lockstep/launch/launch_options.h"
#include "lockstep/launch/patience.h"
#include "lockstep/liveness/progress_page.h"
#include "lockstep/net/endpoint.h"

namespace lockstep::launch {

bool waits_for_rescue(
    const std::vector<RescueState>& left, std::chrono::nanoseconds since_failure) {
  const auto has = [&](RescueState state) { return std::ranges::find(left, state) != left.end(); };
  if (has(RescueState::kDone)) return false;
  return (has(RescueState::kUnderWay) && since_failure < patience::kToSave) ||
         (has(RescueState::kPossible) && since_failure < patience::kToNotice);
}

namespace {

// After which a program that reports no steps has started.
constexpr std::chrono::seconds kLongStart{10};
constexpr std::chrono::milliseconds kSpareLook{100};

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
      int master_port, OtherNodes* other_nodes)
      : Attempt(supervisor, ending_rules(options)),
        supervisor_(supervisor),
        options_(options),
        plan_(plan),
        other_nodes_(other_nodes),
        progress_(options.workers),
        oom_before_(oom_kills()),
        first_step_awaited_(plan.death_ns > 0),  // not by a launcher that has come later
        watch_(options.hang_timeout, progress_, static_cast<std::size_t>(options.workers)) {
    take(start_ranks(
        options, {plan, master_port, progress_.path()}, guardian(), supervisor.spares()));
    if (options_.verbose) say_pids();
    if (other_nodes_ != nullptr) wake_by(other_nodes_->descriptor());
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
    if (other_nodes_ != nullptr && has_failed()) other_nodes_->failed(failure_headline(failure_));
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

  bool saves_what_is_left(Clock::duration since_failure) const override {
    std::vector<RescueState> left;
    for (std::size_t i = 0; i < workers().size(); ++i)
      if (!workers()[i].status && !workers()[i].verdict)
        left.push_back(progress_.progress(static_cast<int>(i)).rescue);
    return waits_for_rescue(left, since_failure);
  }

  std::optional<Clock::time_point> on_wake() override {
    auto due = earlier(look_for_first_step(), look_after_spares());
    due = earlier(due, look_for_hang());
    if (other_nodes_ != nullptr) obey(other_nodes_->look());
    return due;
  }

  static std::optional<Clock::time_point> earlier(
      std::optional<Clock::time_point> one, std::optional<Clock::time_point> other) {
    return one && other ? std::min(one, other) : one ? one : other;
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
    const bool is_alone = other_nodes_ == nullptr && options_.nodes == 1;
    const bool is_slow = waits && are_in_step(watch_.sights());
    if (is_slow && !std::exchange(has_said_slow_, true))
      say(concat(waiting_text(watch_.sights(), {}),
          " without progress; nobody here is behind, so it is left to the time limit of the call"));
    if (other_nodes_ != nullptr)
      other_nodes_->waits(waits ? watch_.sights() : std::vector<RankSight>());
    if (stall_ == Stall::kHangs || (waits && is_alone && !is_slow)) call_hang();
    return is_ending() ? std::nullopt : watch_.due();
  }

  void call_hang() {
    const HangReport report = watch_.report(workers());
    failure_.hang = Hang{.what = report.what, .others = report.others};
    if (other_nodes_ != nullptr && !other_nodes_->others().empty())
      failure_.hang->others += concat(report.others.empty() ? "" : "; ", other_nodes_->others());
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

  /// Starts the spares once the ranks are past their own start, with which they would compete.
  std::optional<Clock::time_point> look_after_spares() {
    if (!options_.spares || has_spares_ || running() < options_.workers) return std::nullopt;
    const auto step = progress_.furthest_step();
    const bool is_under_way = step ? *step > 0 : Clock::now() - start_ > kLongStart;
    if (!is_under_way) return Clock::now() + kSpareLook;
    has_spares_ = true;
    try {
      supervisor_.spares().fill(options_, supervisor_.mark());
    } catch (const std::exception& error) {
      say(concat("no spare processes, restarts take longer: ", error.what()));
    }
    return std::nullopt;
  }

  /// Reports the first step after a restart. Nothing wakes us for it: the page has its time, only
  /// the report comes later.
  std::optional<Clock::time_point> look_for_first_step() {
    using std::chrono::milliseconds;
    if (!first_step_awaited_) return std::nullopt;
    if (const auto first = progress_.first_step_ns()) {
      first_step_awaited_ = false;
      const double seconds = static_cast<double>(*first - plan_.death_ns) * 1e-9;
      say(concat("restart ", plan_.restart, " of ", options_.max_restarts, ": training resumed ",
          fixed_text(seconds, "s"), " after the failure"));
      return std::nullopt;
    }
    const auto now = Clock::now();
    return now +
           std::clamp<Clock::duration>((now - start_) / 8, milliseconds(10), milliseconds(1000));
  }

  Supervisor& supervisor_;
  const LaunchOptions& options_;
  AttemptPlan plan_;
  OtherNodes* other_nodes_;
  SharedProgress progress_;
  OomKills oom_before_;
  Failure failure_;
  Clock::time_point start_ = Clock::now();
  bool first_step_awaited_;
  bool has_spares_ = false;
  bool has_said_slow_ = false;
  RankWatch watch_;
  Stall stall_ = Stall::kNone;
};

/// The port on which rank 0 is to listen.
class MasterPort {
 public:
  explicit MasterPort(const LaunchOptions& options) : given_(options.master_port) {
    if (options.node_rank != 0) return;
    port_ = given_ == 0 ? net::ReservedPort() : net::ReservedPort(given_);
  }

  int number() const { return port_ ? port_->number() : given_; }

  /// Takes another one, unless it was given: there a new group cannot meet a process of the old
  /// one.
  void renew() {
    if (!port_ || given_ != 0) return;
    net::ReservedPort fresh;  // while the old one is still held, so that it is another
    port_ = std::move(fresh);
  }

 private:
  int given_;
  std::optional<net::ReservedPort> port_;
};

}  // namespace

AttemptReport run_ranks_once(Supervisor& supervisor, const LaunchOptions& options,
    const AttemptPlan& plan, int master_port, OtherNodes* other_nodes) {
  return RankAttempt(supervisor, options, plan, master_port, other_nodes).run();
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
