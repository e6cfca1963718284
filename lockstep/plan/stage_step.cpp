#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/parallel/schedule/execution_order.h"
#include "lockstep/parallel/schedule/timetable.h"
#include "lockstep/plan/machine.h"
#include "lockstep/plan/step.h"

namespace lockstep::plan {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// A rank on its way through its actions.
struct Walk {
  std::size_t next = 0;  // action
  double ready = 0;      // when the next one's input is there; kNever: not known yet
  std::optional<TimedAction> running = {};
};

/// A simulation from one event to the next; between two of them all speeds are constant.
class SharedRun {
 public:
  SharedRun(
      const Schedule& schedule, const std::vector<ActionCosts>& stages, const Slowdown& slowdown)
      : schedule_(schedule),
        stages_(stages),
        slowdown_(slowdown),
        ends_(number_of_events(schedule), kNever),
        walks_(schedule.actions.size()) {
    timetable_.stages = schedule.stages;
    timetable_.ranks.resize(schedule.actions.size());
  }

  Timetable run() {
    for (std::size_t rank = 0; rank < walks_.size(); ++rank) look_ahead(rank);
    begin_ready();
    for (double event = next_event(); event != kNever; event = next_event()) {
      now_ = event;
      end_due();
      begin_ready();
    }
    timetable_.length = now_;
    return std::move(timetable_);
  }

 private:
  // When the input of the rank's next action is there, as far as that is known.
  void look_ahead(std::size_t rank) {
    Walk& walk = walks_[rank];
    const auto& actions = schedule_.actions[rank];
    walk.ready = walk.next < actions.size() ? ready_at(actions[walk.next]) : kNever;
  }

  double ready_at(const Action& action) const {
    double ready = 0;
    for (const Action& need : needs_of(schedule_, false, action)) {
      const auto edge = static_cast<std::size_t>(std::min(need.stage, action.stage));
      const bool comes_over = schedule_.rank_of(need.stage) != schedule_.rank_of(action.stage);
      const double transfer = comes_over ? stages_[edge].transfer : 0;
      ready = std::max(ready, ends_[event_of(schedule_, need)] + transfer);
    }
    return ready;
  }

  void begin_ready() {
    for (std::size_t rank = 0; rank < walks_.size(); ++rank) {
      Walk& walk = walks_[rank];
      if (walk.running || walk.ready > now_) continue;
      const Action& action = schedule_.actions[rank][walk.next++];
      const ActionCosts& costs = stages_[static_cast<std::size_t>(action.stage)];
      walk.running = {action, now_, now_ + costs.of(action.kind) * speed_};
      ++active_;
    }
    change_speed();
  }

  // An end moves only if the speed has changed, so that equal speeds give exact times.
  void change_speed() {
    const double speed = active_ > 0 ? slowdown_(active_) : 1;
    if (speed == speed_) return;
    for (Walk& walk : walks_) {
      if (walk.running) walk.running->end = now_ + (walk.running->end - now_) * speed / speed_;
    }
    speed_ = speed;
  }

  double next_event() const {
    double next = kNever;
    for (const Walk& walk : walks_)
      next = std::min(next, walk.running ? walk.running->end : walk.ready);
    return next;
  }

  void end_due() {
    std::vector<std::size_t> ended;
    for (std::size_t rank = 0; rank < walks_.size(); ++rank) {
      Walk& walk = walks_[rank];
      if (!walk.running || walk.running->end > now_) continue;
      ends_[event_of(schedule_, walk.running->action)] = now_;
      timetable_.ranks[rank].push_back(*walk.running);
      walk.running.reset();
      --active_;
      ended.push_back(rank);
    }
    if (ended.empty()) return;
    for (std::size_t rank = 0; rank < walks_.size(); ++rank) {
      if (!walks_[rank].running) look_ahead(rank);
    }
  }

  const Schedule& schedule_;
  const std::vector<ActionCosts>& stages_;
  const Slowdown& slowdown_;
  std::vector<double> ends_;  // of events; kNever: not over
  std::vector<Walk> walks_;   // of ranks
  Timetable timetable_;
  double now_ = 0;
  double speed_ = 1;  // how many times as long all running actions take
  int active_ = 0;
};

Use use_of(ActionKind kind) {
  return kind == ActionKind::kForward ? Use::kForward : Use::kBackward;
}

/// A step of a replica whose stages lie on several places.
class StageStep {
 public:
  StageStep(const ModelProfile& profile, const Machine& machine, const Way& way, double batch)
      : profile_(profile),
        machine_(machine),
        way_(way),
        ranks_(ranks_of(way, machine)),
        batch_(batch / way.replicas),
        samples_(batch_ / way.micro_batches),
        balance_(balance_of(profile, way, batch)),
        schedule_(
            make_schedule(way.schedule, way.stages, way.scheduled_stages(), way.micro_batches)),
        bytes_(bytes_of_places()) {}

  Prediction run() {
    const Timetable timetable =
        shared_timetable(schedule_, costs(), [this](int active) { return slowdown(active); });
    const double begin = profile_.input(batch_) * slowdown(1);
    tasks_.push_back({0, Use::kInput, "input", 0, begin});
    for (std::size_t place = 0; place < timetable.ranks.size(); ++place) {
      for (const auto& [action, start, end] : timetable.ranks[place])
        tasks_.push_back(
            {place, use_of(action.kind), to_string(action), begin + start, begin + end});
    }
    Prediction prediction;
    prediction.bubble = timetable.idle_share();
    finish(begin + timetable.length, prediction);
    return prediction;
  }

 private:
  // Of a place that has nobody beside it.
  std::vector<ActionCosts> costs() const {
    std::vector<ActionCosts> stages;
    std::size_t layer = 0;
    for (std::size_t stage = 0; stage < balance_.size(); ++stage) {
      ActionCosts sum{.forward = 0, .backward_input = 0, .backward_weight = 0, .backward = 0};
      double parameter_bytes = 0;
      for (int count = 0; count < balance_[stage]; ++count, ++layer) {
        const LayerCurves& own = profile_.layers[layer];
        sum.forward += own.forward(samples_);
        sum.backward += own.backward(samples_);
        sum.backward_input += own.backward_input(samples_);
        sum.backward_weight += own.backward_weight(samples_);
        parameter_bytes += own.parameter_bytes();
      }
      add_accumulation(sum, parameter_bytes);
      if (way_.checkpoint != Checkpoint::kNever) add_recomputation(sum);
      if (layer < profile_.layers.size())
        sum.transfer = machine_.within.seconds(samples_ * profile_.layers[layer - 1].output_bytes) +
                       profile_.overheads.hand_over(samples_);
      stages.push_back(sum);
    }
    return stages;
  }

  // The first micro-batch's gradients are added to nothing; what that spares is shared by all.
  void add_accumulation(ActionCosts& costs, double parameter_bytes) const {
    const double share = 1 - 1.0 / way_.micro_batches;
    const double seconds = share * parameter_bytes * profile_.overheads.gradient_core;
    costs.backward += seconds;
    costs.backward_weight += seconds;
  }

  // The last micro-batch may be spared; its share is the same for all.
  void add_recomputation(ActionCosts& costs) const {
    const bool spares_one = way_.checkpoint == Checkpoint::kExceptLast;
    const double share = 1 - (spares_one ? 1.0 / way_.micro_batches : 0);
    costs.backward += share * costs.forward;
    costs.backward_input += share * costs.forward;
  }

  // Places that wait slow nobody down. Replicas do the same at the same time.
  double slowdown(int active) const {
    return profile_.company.slows_compute(active * replicas_near()) * slowest();
  }

  // The slowest place keeps all others waiting, unless stages follow each other: then a replica
  // takes the sum of its places.
  double slowest() const {
    if (way_.schedule != ScheduleKind::kSequential)
      return slowest_of(way_.places(), machine_.jitter);
    return slowest_of(way_.replicas, machine_.jitter / std::sqrt(way_.stages));
  }

  // Replicas whose places slow each other down.
  double replicas_near() const { return machine_.neighbours(ranks_.nodes, ranks_.a_node); }

  std::size_t places() const { return static_cast<std::size_t>(way_.stages); }

  // Of their parameters.
  std::vector<double> bytes_of_places() const {
    std::vector<double> bytes(places());
    std::size_t layer = 0;
    for (std::size_t stage = 0; stage < balance_.size(); ++stage) {
      const auto place = static_cast<std::size_t>(schedule_.rank_of(static_cast<int>(stage)));
      for (int count = 0; count < balance_[stage]; ++count, ++layer)
        bytes[place] += profile_.layers[layer].parameter_bytes();
    }
    return bytes;
  }

  // Replicas of one stage exchange as those of the others do, at the same time: when the bytes of
  // this place are through a link, as many of each other place are, or all that it has.
  Machine between_replicas(std::size_t place) const {
    double passed = 0;
    for (const double bytes : bytes_) passed += std::min(bytes, bytes_[place]);
    return machine_in_use(machine_, profile_, ranks_,
        {.count = way_.stages, .on_the_link = bytes_[place] > 0 ? passed / bytes_[place] : 1});
  }

  // What follows the pipeline: its replicas agree on the gradients, then all places step, and give
  // each other the parameters that only one of them has stepped.
  void finish(double end, Prediction& prediction) {
    const std::vector<double> steps = optimizer_seconds();
    double last = end;
    for (std::size_t place = 0; place < places(); ++place) {
      const Machine machine = between_replicas(place);
      double now = end;
      const auto follow = [&](Use use, const char* name, double seconds) {
        if (seconds > 0) tasks_.push_back({place, use, name, now, now + seconds});
        now += seconds;
      };
      const double reducing = reduce_seconds(bytes_[place], way_, machine);
      const double gathering =
          way_.is_sharded ? all_gather_seconds(bytes_[place], ranks_, machine) : 0;
      follow(Use::kCommunication, "gradients", reducing);
      follow(Use::kOptimizer, "optimizer", steps[place]);
      follow(Use::kCommunication, "parameters", gathering);
      prediction.communication = std::max(prediction.communication, reducing + gathering);
      last = std::max(last, now);
    }
    const double rest = profile_.rest(batch_) * slowdown(1);
    tasks_.push_back({0, Use::kRest, "bookkeeping", last, last + rest});
    prediction.seconds = last + rest;
    describe_busiest(prediction);
  }

  // Each place has its own layers' share.
  std::vector<double> optimizer_seconds() const {
    const double all = profile_.parameter_bytes();
    const double own = profile_.optimizer / (way_.is_sharded ? way_.replicas : 1);
    std::vector<double> alone;
    for (std::size_t place = 0; place < places(); ++place)
      alone.push_back(all > 0 ? own * bytes_[place] / all : 0);
    return shared_seconds(alone,
        [this](int active) { return profile_.company.slows_memory(active * replicas_near()); });
  }

  void describe_busiest(Prediction& prediction) {
    std::vector<std::array<double, kUses>> uses(places());
    std::vector<double> busy(places());
    for (const TimedTask& task : tasks_) {
      uses[task.lane][static_cast<std::size_t>(task.use)] += task.end - task.start;
      busy[task.lane] += task.end - task.start;
    }
    const auto most = static_cast<std::size_t>(std::ranges::max_element(busy) - busy.begin());
    prediction.uses = uses[most];
    prediction.idle = std::max(0.0, prediction.seconds - busy[most]);
    for (int place = 0; place < way_.stages; ++place)
      prediction.lanes.push_back(concat("place ", place));
    prediction.tasks = std::move(tasks_);
  }

  const ModelProfile& profile_;
  const Machine& machine_;
  const Way& way_;
  const Ranks ranks_;
  const double batch_;    // of a replica
  const double samples_;  // of a micro-batch
  const std::vector<int> balance_;
  const Schedule schedule_;
  const std::vector<double> bytes_;  // of each place's parameters
  std::vector<TimedTask> tasks_;
};

}  // namespace

Timetable shared_timetable(
    const Schedule& schedule, const std::vector<ActionCosts>& stages, const Slowdown& slowdown) {
  check(!has_transfers(schedule), "plan: a schedule with transfers is not simulated in company");
  Timetable alone = simulate_stages(schedule, stages);  // also checks both
  SharedRun run(schedule, stages, slowdown);
  Timetable timetable = run.run();
  timetable.most_live_activations = std::move(alone.most_live_activations);
  return timetable;
}

std::vector<double> shared_seconds(const std::vector<double>& costs, const Slowdown& slowdown) {
  std::vector<std::size_t> order(costs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(
      order, [&](std::size_t one, std::size_t other) { return costs[one] < costs[other]; });
  std::vector<double> ends(costs.size());
  double done = 0, now = 0;  // of each task that is left; since the begin
  for (std::size_t ended = 0; ended < order.size(); ++ended) {
    const double more = costs[order[ended]] - done;
    if (more > 0) now += more * slowdown(static_cast<int>(order.size() - ended));
    done = costs[order[ended]];
    ends[order[ended]] = now;
  }
  return ends;
}

Prediction stage_step(
    const ModelProfile& profile, const Machine& machine, const Way& way, double batch) {
  return StageStep(profile, machine, way, batch).run();
}

}  // namespace lockstep::plan
