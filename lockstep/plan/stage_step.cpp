#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/parallel/schedule/timetable.h"
#include "lockstep/plan/collective_time.h"
#include "lockstep/plan/replica_step.h"
#include "lockstep/plan/shared_timetable.h"

namespace lockstep::plan {
namespace {

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
    Prediction prediction;
    for (int place = 0; place < way_.stages; ++place) clock_.add_lane(concat("place ", place));
    const double begin = profile_.input(batch_) * slowdown(1);
    clock_.add(0, Use::kInput, "input", begin);
    std::vector<TimedTask> pipeline = tasks_of(timetable, begin);
    const double end = begin + timetable.length;
    finish(end, pipeline, prediction);
    prediction.bubble = timetable.idle_share();
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
        const LayerCosts& own = profile_.layers[layer];
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

  std::vector<TimedTask> tasks_of(const Timetable& timetable, double begin) const {
    std::vector<TimedTask> tasks;
    for (std::size_t place = 0; place < timetable.ranks.size(); ++place) {
      for (const auto& [action, start, end] : timetable.ranks[place])
        tasks.push_back(
            {place, use_of(action.kind), to_string(action), begin + start, begin + end});
    }
    return tasks;
  }

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
  void finish(double end, std::vector<TimedTask> tasks, Prediction& prediction) {
    const std::vector<double> steps = optimizer_seconds();
    double last = end;
    for (std::size_t place = 0; place < places(); ++place) {
      const Machine machine = between_replicas(place);
      double now = end;
      const auto follow = [&](Use use, const char* name, double seconds) {
        if (seconds > 0) tasks.push_back({place, use, name, now, now + seconds});
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
    tasks.push_back({0, Use::kRest, "bookkeeping", last, last + rest});
    describe_busiest(std::move(tasks), last + rest, prediction);
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

  void describe_busiest(std::vector<TimedTask> tasks, double length, Prediction& prediction) {
    tasks.insert(tasks.begin(), clock_.tasks().begin(), clock_.tasks().end());
    std::vector<std::array<double, kUses>> uses(static_cast<std::size_t>(way_.stages));
    std::vector<double> busy(uses.size());
    for (const TimedTask& task : tasks) {
      uses[task.lane][static_cast<std::size_t>(task.use)] += task.end - task.start;
      busy[task.lane] += task.end - task.start;
    }
    const auto most =
        static_cast<std::size_t>(std::max_element(busy.begin(), busy.end()) - busy.begin());
    prediction.seconds = length;
    prediction.uses = uses[most];
    prediction.idle = std::max(0.0, length - busy[most]);
    prediction.lanes = clock_.lanes();
    prediction.tasks = std::move(tasks);
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
  StepClock clock_;
};

}  // namespace

Prediction stage_step(
    const ModelProfile& profile, const Machine& machine, const Way& way, double batch) {
  return StageStep(profile, machine, way, batch).run();
}

}  // namespace lockstep::plan
