#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/parallel/schedule/bucket.h"
#include "lockstep/plan/machine.h"
#include "lockstep/plan/step.h"

namespace lockstep::plan {
namespace {

// By messages of several groups at once: they take as long as one message of all their bytes.
Link shared(Link link, double by) {
  link.bytes_per_second /= by;
  link.core_share /= by;
  std::vector<CostCurve::Point> points = link.measured.points();
  for (CostCurve::Point& point : points) point.batch /= by;
  link.measured = CostCurve(std::move(points));
  return link;
}

// Of a core that moves the bytes: no faster than it can beside computing, and it does nothing else.
// A link that was measured says itself what it takes of a core, and without the noise of two steps.
Link driven_by_core(Link link, double core_a_byte) {
  if (core_a_byte == 0 || link.core_share > 0) return link;
  const double most = 1 / core_a_byte;
  const bool is_free = link.bytes_per_second == 0;
  link.bytes_per_second = is_free ? most : std::min(link.bytes_per_second, most);
  link.core_share = link.bytes_per_second / most;
  if (link.measured.is_free()) return link;
  std::vector<CostCurve::Point> points = link.measured.points();
  for (CostCurve::Point& point : points)
    point.seconds = std::max(point.seconds, core_a_byte * point.batch);
  link.measured = CostCurve(std::move(points));
  return link;
}

// Whose ranks' cores take turns.
Link slowed(Link link, double factor) {
  link.latency *= factor;
  link.bytes_per_second /= factor;
  link.measured = link.measured.times(factor);
  return link;
}

// Driven by cores that drive other ranks' links, too. What a core has no time for makes a link
// slower; where a node has several ranks, the all-reduce in levels shares the driving among them.
Link driven_in_turns(Link link, double turns, int ranks_a_node) {
  const double share = link.core_share * turns;
  const bool has_time = ranks_a_node > 1 || share <= 1;
  if (!has_time) link = slowed(std::move(link), share);
  link.core_share = has_time ? share : 1;
  return link;
}

using Task = StepClock::Task;

/// The buckets of the gradients: which one each parameter completes, if any, and their bytes.
struct Buckets {
  std::vector<double> bytes;
  std::vector<int> completed_by;  // bucket by parameter; -1: none
};

Buckets buckets_of(const ModelProfile& profile, const Way& way) {
  std::vector<ParameterShape> shapes;
  for (const LayerCurves& layer : profile.layers) {
    for (const double bytes : layer.parameters)
      shapes.push_back({.bytes = static_cast<std::size_t>(bytes)});
  }
  Buckets buckets{.completed_by = std::vector<int>(shapes.size(), -1)};
  const auto plans =
      cut_buckets(shapes, reverse_order(shapes.size()), {way.first_bucket_bytes, way.bucket_bytes});
  for (std::size_t bucket = 0; bucket < plans.size(); ++bucket) {
    double bytes = 0;
    for (const std::size_t index : plans[bucket].parameters)
      bytes += static_cast<double>(shapes[index].bytes);
    buckets.bytes.push_back(bytes);
    buckets.completed_by[plans[bucket].parameters.back()] = static_cast<int>(bucket);
  }
  return buckets;
}

/// One replica's step on a clock.
class ReplicaStep {
 public:
  ReplicaStep(const ModelProfile& profile, const Machine& machine, const Way& way, double batch)
      : profile_(profile),
        way_(way),
        ranks_(ranks_of(way, machine)),
        machine_(machine_in_use(machine, profile, ranks_)),
        copy_(ranks_of_copy(way, machine)),
        in_copy_(machine_of_groups(machine, copy_)),
        part_(ranks_of_part(way, machine)),
        between_copies_(machine_of_groups(machine, part_)),
        samples_(batch / way.replicas / way.accumulated),
        slowdown_(
            profile.company.slows_compute(neighbours()) * slowest_of(way.replicas, machine.jitter)),
        place_(clock_.add_lane("place")) {
    if (way.replicas > 1) link_ = clock_.add_lane("gradients");
  }

  Prediction run() {
    for (int pass = 0; pass < way_.accumulated; ++pass) {
      add(Use::kInput, "input", profile_.input(samples_of_loader()) * slowdown_);
      if (is_of_pytorch()) {
        pass_of_pytorch();
        continue;
      }
      if (is_in_shards()) {
        forward_by_units();
      } else {
        for (const LayerCurves& layer : profile_.layers) forward(layer);
      }
      add(Use::kRest, "loss and bookkeeping", profile_.rest(samples_) * slowdown_);
      if (is_in_threads())
        add(Use::kRest, "meeting of threads", profile_.overheads.threads(samples_));
      const bool is_last = pass + 1 == way_.accumulated;
      const bool overlaps = way_.replication == Replication::kProcesses && way_.replicas > 1;
      if (is_in_shards()) {
        backward_by_units();
      } else if (is_last && overlaps) {
        backward_with_buckets();
      } else {
        backward(pass > 0);
      }
    }
    if (is_in_threads() && !is_of_pytorch()) sum_gradients();
    step_optimizer();
    Prediction prediction;
    prediction.seconds = clock_.length();
    prediction.uses = clock_.uses_of(place_);
    const double busy = std::accumulate(prediction.uses.begin(), prediction.uses.end(), 0.0);
    prediction.idle = std::max(0.0, prediction.seconds - busy);
    prediction.lanes = clock_.lanes();
    prediction.tasks = clock_.tasks();
    prediction.communication = link_ ? clock_.uses_of(*link_)[kCommunicationIndex] : 0;
    return prediction;
  }

 private:
  static constexpr auto kCommunicationIndex = static_cast<std::size_t>(Use::kCommunication);

  int neighbours() const { return machine_.neighbours(ranks_.nodes, ranks_.a_node); }

  // Replicas in threads have one loader.
  double samples_of_loader() const { return is_in_threads() ? samples_ * way_.replicas : samples_; }

  bool is_in_threads() const {
    return way_.replication == Replication::kThreads && way_.replicas > 1;
  }

  bool is_of_pytorch() const { return way_.is_pytorch && is_in_threads(); }

  // As many groups of such ranks as fill the nodes exchange at once.
  Machine machine_of_groups(const Machine& machine, const Ranks& group) const {
    const int count = std::max(1, ranks_.a_node / group.a_node);
    return machine_in_use(
        machine, profile_, group, {.count = count, .on_the_link = static_cast<double>(count)});
  }

  bool is_in_shards() const {
    return way_.replication == Replication::kShards && way_.replicas > 1;
  }

  Task add(Use use, const std::string& name, double seconds, std::span<const Task> needs = {}) {
    return clock_.add(place_, use, name, seconds, needs);
  }

  void forward(const LayerCurves& layer) {
    add(Use::kForward, layer.name, layer.forward(samples_) * slowdown_);
  }

  void backward(const LayerCurves& layer, bool moves_gradients) {
    add(Use::kBackward, layer.name,
        backward_seconds(layer) + (moves_gradients ? gradient_seconds(layer) : 0));
  }

  // With checkpoints the layer computes its forward again before.
  double backward_seconds(const LayerCurves& layer) const {
    const bool is_again = way_.checkpoint != Checkpoint::kNever;
    return (layer.backward(samples_) + (is_again ? layer.forward(samples_) : 0)) * slowdown_;
  }

  void backward(bool adds_gradients) {
    for (auto layer = profile_.layers.rbegin(); layer != profile_.layers.rend(); ++layer)
      backward(*layer, adds_gradients);
  }

  // While a unit computes, the next one is gathered.
  void forward_by_units() {
    const std::vector<ShardedUnit> units = sharded_units(profile_, way_);
    Task here = exchange("gather 0", units[0].gathered);
    for (std::size_t unit = 0; unit < units.size(); ++unit) {
      const Task needed = here;
      add(Use::kCommunication, "wait", 0, std::span(&needed, 1));
      if (unit + 1 < units.size())
        here = exchange(concat("gather ", unit + 1), units[unit + 1].gathered);
      for (const std::size_t layer : units[unit].layers) forward(profile_.layers[layer]);
    }
  }

  // The last unit is whole already; the others are gathered as in forward. The gradients of one are
  // averaged while those before it compute.
  void backward_by_units() {
    const std::vector<ShardedUnit> units = sharded_units(profile_, way_);
    std::optional<Task> here, reduced;
    for (std::size_t unit = units.size(); unit-- > 0;) {
      if (here) add(Use::kCommunication, "wait", 0, std::span(&*here, 1));
      if (unit > 0 && way_.reshard == Reshard::kAfterForward)
        here = exchange(concat("gather ", unit - 1), units[unit - 1].gathered);
      for (auto layer = units[unit].layers.rbegin(); layer != units[unit].layers.rend(); ++layer)
        backward(profile_.layers[*layer], true);
      const double bytes = sent_bytes(units[unit].bytes, way_);
      reduced = exchange(concat("reduce ", unit), bytes);
      if (way_.copies > 1)
        reduced = average(concat("average ", unit), bytes * way_.copies / way_.replicas);
    }
    add(Use::kCommunication, "wait", 0, std::span(&*reduced, 1));
  }

  // Within a copy; all-gather and reduce-scatter take equally long.
  Task exchange(const std::string& name, double bytes) {
    return transfer(name, all_gather_seconds(bytes, copy_, in_copy_), core_share(copy_, in_copy_));
  }

  // Of this place's part, over the copies.
  Task average(const std::string& name, double bytes) {
    const AllReduce algorithm = usual_all_reduce(part_, between_copies_);
    return transfer(name, all_reduce_seconds(bytes, part_, between_copies_, algorithm),
        core_share(bytes, part_, between_copies_, algorithm));
  }

  // Note [DataParallel of PyTorch]
  // One process gives all devices the parameters in each pass, one behind the other through NCCL.
  // The replicas' forwards are threads that share Python's lock, so that they take no less than all
  // of them keep it; backward needs no Python. The first device gets all outputs, computes the loss
  // of all samples, and gets the sum of all gradients.
  void pass_of_pytorch() {
    const double parameters = machine_.within.seconds(profile_.parameter_bytes());
    const double outputs = machine_.within.seconds(
        (way_.replicas - 1) * samples_ * profile_.layers.back().output_bytes);
    hold("parameters", parameters);
    double computing = 0, started = 0;
    for (const LayerCurves& layer : profile_.layers) {
      forward(layer);
      computing += layer.forward(samples_) * slowdown_;
      started += layer.forward(1);
    }
    const double locked = way_.replicas * (way_.lock_seconds > 0 ? way_.lock_seconds : started);
    add(Use::kRest, "Python's lock", std::max(0.0, locked - computing));
    hold("outputs", outputs);
    add(Use::kRest, "loss and bookkeeping", profile_.rest(samples_ * way_.replicas));
    hold("gradients of outputs", outputs);
    backward(false);
    hold("sum of gradients", parameters);
  }

  // What the place does before comes first.
  Task transfer(const std::string& name, double seconds, double share_of_core) {
    const Task before = add(Use::kCommunication, name, 0);
    const Task task = clock_.add(*link_, Use::kCommunication, name, seconds, std::span(&before, 1));
    add(Use::kCommunication, name, seconds * share_of_core);
    return task;
  }

  // Of copying a layer's gradients, or adding them to others; measured with all cores busy.
  double gradient_seconds(const LayerCurves& layer) const {
    return layer.parameter_bytes() * profile_.overheads.gradient_core *
           profile_.company.slows_by_turns(neighbours());
  }

  // A layer's parameters get their gradients one after the other, the last one first; each takes
  // the share of the layer's time that it has of its bytes.
  void backward_with_buckets() {
    const Buckets buckets = buckets_of(profile_, way_);
    std::size_t parameter = buckets.completed_by.size();
    for (auto layer = profile_.layers.rbegin(); layer != profile_.layers.rend(); ++layer) {
      const double all = backward_seconds(*layer) + gradient_seconds(*layer);
      const double bytes = layer->parameter_bytes();
      double left = all;
      for (auto own = layer->parameters.rbegin(); own != layer->parameters.rend(); ++own) {
        const int bucket = buckets.completed_by[--parameter];
        const double share = bytes > 0 ? all * *own / bytes : 0;
        passed_ += share;
        left -= share;
        if (bucket < 0) continue;
        flush(layer->name);
        reduce(buckets.bytes[static_cast<std::size_t>(bucket)], bucket);
      }
      passed_ += std::max(0.0, left);
      flush(layer->name);
    }
    if (!reductions_.empty())
      add(Use::kCommunication, "wait", 0, std::span(&reductions_.back(), 1));
  }

  void flush(const std::string& layer) {
    if (passed_ > 0) last_ = add(Use::kBackward, layer, passed_);
    passed_ = 0;
  }

  void reduce(double bytes, int bucket) {
    const double seconds = reduce_seconds(bytes, way_, machine_);
    const std::string name = concat("bucket ", bucket);
    const std::vector<Task> needs = last_ ? std::vector<Task>{*last_} : std::vector<Task>{};
    reductions_.push_back(clock_.add(*link_, Use::kCommunication, name, seconds, needs));
    add(Use::kCommunication, name, seconds * reduce_core_share(bytes, way_, machine_));
  }

  void sum_gradients() {
    hold("sum of gradients", reduce_seconds(profile_.parameter_bytes(), way_, machine_));
  }

  // A transfer that the place waits for.
  void hold(const char* name, double seconds) {
    const Task last = add(Use::kCommunication, name, 0);
    const Task moved = clock_.add(*link_, Use::kCommunication, name, seconds, std::span(&last, 1));
    add(Use::kCommunication, name, seconds);
    add(Use::kCommunication, "wait", 0, std::span(&moved, 1));
  }

  // Replicas in threads share the parameters: one place steps for all.
  void step_optimizer() {
    const bool is_shared = way_.replication == Replication::kThreads;
    const double busy = is_shared ? 1 : neighbours();
    const bool is_shared_out = way_.is_sharded || is_in_shards();
    const double own =
        is_shared_out ? profile_.optimizer * way_.copies / way_.replicas : profile_.optimizer;
    add(Use::kOptimizer, "optimizer", own * profile_.company.slows_memory(busy));
    if (!way_.is_sharded || way_.replicas == 1) return;
    const double seconds = all_gather_seconds(profile_.parameter_bytes(), ranks_, machine_);
    const Task last = add(Use::kOptimizer, "end of optimizer", 0);
    const Task gathered =
        clock_.add(*link_, Use::kCommunication, "parameters", seconds, std::span(&last, 1));
    add(Use::kCommunication, "parameters", seconds * core_share(ranks_, machine_));
    add(Use::kCommunication, "wait", 0, std::span(&gathered, 1));
  }

  const ModelProfile& profile_;
  const Way& way_;
  const Ranks ranks_;
  const Machine machine_;
  const Ranks copy_;  // of fsdp
  const Machine in_copy_;
  const Ranks part_;  // those that have the same one of each copy
  const Machine between_copies_;
  const double samples_;  // of a replica's pass
  const double slowdown_;
  StepClock clock_;
  std::size_t place_;
  std::optional<std::size_t> link_;
  double passed_ = 0;  // seconds of backward since its last task
  std::optional<Task> last_;
  std::vector<Task> reductions_;
};

}  // namespace

std::size_t StepClock::add_lane(std::string name) {
  lanes_.push_back(std::move(name));
  free_at_.push_back(0);
  return lanes_.size() - 1;
}

StepClock::Task StepClock::add(
    std::size_t lane, Use use, std::string name, double seconds, std::span<const Task> needs) {
  check(lane < lanes_.size(), "plan: there is no lane ", lane);
  check(seconds >= 0 && std::isfinite(seconds), "plan: ", name, " takes ", seconds, " seconds");
  double start = free_at_[lane];
  for (const Task need : needs) {
    check(need < tasks_.size(), "plan: ", name, " needs a task that is not there");
    start = std::max(start, tasks_[need].end);
  }
  free_at_[lane] = start + seconds;
  tasks_.push_back({lane, use, std::move(name), start, start + seconds});
  return tasks_.size() - 1;
}

double StepClock::length() const {
  return lanes_.empty() ? 0 : *std::ranges::max_element(free_at_);
}

std::array<double, kUses> StepClock::uses_of(std::size_t lane) const {
  std::array<double, kUses> uses{};
  for (const TimedTask& task : tasks_) {
    if (task.lane == lane) uses[static_cast<std::size_t>(task.use)] += task.end - task.start;
  }
  return uses;
}

Machine machine_in_use(
    const Machine& machine, const ModelProfile& profile, const Ranks& ranks, const Groups& groups) {
  if (ranks.nodes == 1 && groups.count == 1) return machine;
  Machine real = machine;
  const int a_node = ranks.a_node * groups.count;
  const double turns = profile.company.slows_by_turns(machine.neighbours(ranks.nodes, a_node));
  real.within = slowed(machine.within, turns);
  if (ranks.nodes == 1) return real;
  real.between = driven_in_turns(
      driven_by_core(shared(machine.between, groups.on_the_link), profile.overheads.socket_core),
      turns, ranks.a_node);
  return real;
}

Prediction replica_step(
    const ModelProfile& profile, const Machine& machine, const Way& way, double batch) {
  return ReplicaStep(profile, machine, way, batch).run();
}

}  // namespace lockstep::plan
