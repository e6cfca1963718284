#include "lockstep/plan/prediction.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/parallel/schedule/partition.h"
#include "lockstep/parallel/schedule/timetable.h"
#include "lockstep/plan/machine.h"
#include "lockstep/plan/step.h"

namespace lockstep::plan {
namespace {

// Parameter, gradient, and what the optimizer keeps; replicas share the last where it is sharded.
double bytes_a_parameter_byte(const ModelProfile& profile, const Way& way) {
  return 2 + profile.state_copies / (way.is_sharded ? way.replicas : 1);
}

/// Of how many micro-batches a place keeps something of a stage at once.
struct KeptMicroBatches {
  int activations, inputs;
};

// The stages of one place: interleaved has several.
double memory_of_place(const ModelProfile& profile, const Way& way, const std::vector<int>& balance,
    const KeptMicroBatches& kept, double samples, std::size_t place) {
  double bytes = 0, activations = 0, inputs = 0;
  std::size_t layer = 0;
  for (std::size_t stage = 0; stage < balance.size(); ++stage) {
    const bool is_own = stage % static_cast<std::size_t>(way.stages) == place;
    if (is_own && layer > 0) inputs += profile.layers[layer - 1].output_bytes;
    for (int count = 0; count < balance[stage]; ++count, ++layer) {
      if (!is_own) continue;
      bytes += profile.layers[layer].parameter_bytes() * bytes_a_parameter_byte(profile, way);
      activations += profile.layers[layer].activation_bytes;
    }
  }
  const auto stages_here = static_cast<double>(balance.size()) / static_cast<double>(way.stages);
  return bytes + samples * (activations * kept.activations + inputs * kept.inputs) / stages_here;
}

// What forward keeps for backward of a sample: everything, or with checkpoints the layers' inputs
// and everything of the one that is computed again.
double kept_bytes(const ModelProfile& profile, const Way& way) {
  if (way.checkpoint == Checkpoint::kNever) return profile.activation_bytes();
  double inputs = 0, most = 0;
  for (const LayerCurves& layer : profile.layers) {
    most = std::max(most, inputs + layer.activation_bytes);
    inputs += layer.output_bytes;
  }
  return most;
}

// At first a rank has the whole model, then its parts and two buffers for the largest units: one
// computes while the other is gathered, and two for gradients. Without resharding all are whole.
double memory_of_shards(const ModelProfile& profile, const Way& way, double samples) {
  double largest = 0, second = 0, gathered = 0;
  for (const ShardedUnit& unit : sharded_units(profile, way)) {
    second = std::max(second, std::min(largest, unit.bytes));
    largest = std::max(largest, unit.bytes);
    gathered += unit.gathered;
  }
  const double all = profile.parameter_bytes(), two = largest + second;
  const double whole = way.reshard == Reshard::kNever ? all : two;
  const double training = all * bytes_a_parameter_byte(profile, {}) * way.copies / way.replicas +
                          (all > 0 ? whole * gathered / all : 0) + two +
                          samples * kept_bytes(profile, way);
  return profile.process_bytes + std::max(all, training);
}

double exchange_bytes(const ModelProfile& profile, const Machine& machine, const Way& way) {
  if (way.replicas == 1 || way.replication == Replication::kThreads) return 0;
  const auto [nodes, a_node] = ranks_of(way, machine);
  return (a_node > 1 ? profile.overheads.replica_bytes : 0) +
         (nodes > 1 ? profile.overheads.socket_bytes : 0);
}

double memory_of_stages(const ModelProfile& profile, const Way& way, double batch) {
  const Schedule schedule =
      make_schedule(way.schedule, way.stages, way.scheduled_stages(), way.micro_batches);
  const auto activations = most_live_activations(schedule, way.checkpoint);
  const auto under_way = most_live_activations(schedule, Checkpoint::kNever);
  const std::vector<int> balance = balance_of(profile, way, batch);
  const double samples = batch / way.replicas / way.micro_batches;
  double most = 0;
  for (std::size_t place = 0; place < activations.size(); ++place) {
    // An activation is kept with its stage's input, which is the activation of the stage before.
    const int inputs = way.checkpoint == Checkpoint::kNever ? 0 : under_way[place];
    most = std::max(
        most, memory_of_place(profile, way, balance, {activations[place], inputs}, samples, place));
  }
  return most + profile.process_bytes;
}

// Note [Spread of a prediction]
// The standard deviation of the logarithm of predicted over measured, fitted to 185 cases of
// benchmarks/plan_accuracy.py on a machine that others share, where equal trainings differ by as
// much. The profile's own noise counts where it is larger.
struct KindOfWay {
  const char* name;
  double spread;
};
constexpr std::array kSpreads{KindOfWay{"serial", 0.09}, KindOfWay{"dp", 0.10},
    KindOfWay{"ddp", 0.10}, KindOfWay{"fsdp", 0.25}, KindOfWay{"mp", 0.11}, KindOfWay{"pp", 0.11}};
constexpr double kComposed = 0.14;  // replicas of stages
constexpr double kBetweenNodes = 0.06;
constexpr double kCrowded = 0.12;      // more places than cores
constexpr double kNotMeasured = 0.25;  // data sheets and other people's figures
// On a device whose rate is a share of its peak: by that rule a K80 would be off by 2.0 times, a
// TITAN RTX in fp32 by 1.2, an A100 in mixed precision by 0.94, an H100 by 2.5. The root mean
// square of their logarithms.
constexpr double kEstimated = 0.59;
// Half of the logarithm by which the two trainings differ that the rate of a transformer is the
// middle of, on an A100 and an H100.
constexpr double kOtherSoftware = 0.34;
// Batches beyond those that were measured. Of larger ones the same line goes on, so ways that have
// them are off alike; if it is too steep, smaller ones are off the other way.
constexpr double kOutside = 0.15;
// Places that share a node, by a profile of one place alone: they slow each other down by as much
// as nobody knows. Two cores of the machines that we measured take up to 1.3 times as long.
constexpr double kUnknownCompany = 0.15;
// Of each kind's spread, what all ways of a profile have in common: a training differs from the
// same training some minutes later by 5.6 % in the median, so each is off by this.
constexpr double kDrift = 0.06;

constexpr double kOneInTwenty = 1.6449;  // standard deviations

double of_kind(const Way& way) {
  const std::string kind = kind_of(way);
  const auto found =
      std::ranges::find_if(kSpreads, [&](const KindOfWay& each) { return kind == each.name; });
  return found == kSpreads.end() ? kComposed : found->spread;
}

double samples_at_once(const Way& way, double batch) {
  return batch / way.replicas / (way.stages > 1 ? way.micro_batches : way.accumulated);
}

// 1 above the batches that were measured, -1 below them, 0 between.
int side_of(const ModelProfile& profile, double samples) {
  const auto& points = profile.layers.front().forward.points();
  if (points.empty() || samples > points.back().batch) return 1;
  return samples < points.front().batch ? -1 : 0;
}

/// The spread of a way of its own, of its batch, and with what all ways of the profile have in
/// common.
struct Spreads {
  double own, outside, all;
};

Spreads spreads_of(
    const ModelProfile& profile, const Machine& machine, const Way& way, double batch) {
  const int cores = profile.company.cores;
  const int on_the_machine =
      machine.is_one_machine ? way.places() : std::min(way.places(), machine.places);
  double own = std::pow(of_kind(way), 2) - std::pow(kDrift, 2);
  if (way.places() > machine.places) own += std::pow(kBetweenNodes, 2);
  if (cores > 0 && on_the_machine > cores) own += std::pow(kCrowded, 2);
  if (!profile.knows_within && on_the_machine > 1) own += std::pow(kUnknownCompany, 2);
  double common = std::pow(kDrift, 2);
  common += std::max(0.0, std::pow(profile.noise, 2) - std::pow(of_kind(way), 2));
  if (!profile.is_measured) common += std::pow(kNotMeasured, 2);
  if (profile.is_estimated) common += std::pow(kEstimated, 2);
  if (profile.is_of_products) common += std::pow(kOtherSoftware, 2);
  const double outside = kOutside * side_of(profile, samples_at_once(way, batch));
  return {std::sqrt(own), outside, std::sqrt(own + common + std::pow(outside, 2))};
}

}  // namespace

Ranks ranks_of(const Way& way, const Machine& machine) {
  const int replicas_a_node = std::max(1, machine.places / way.stages);
  const int nodes = (way.replicas + replicas_a_node - 1) / replicas_a_node;
  return {nodes, (way.replicas + nodes - 1) / nodes};
}

// Copies that do not fit into nodes evenly reach into another one.
Ranks ranks_of_copy(const Way& way, const Machine& machine) {
  const Ranks all = ranks_of(way, machine);
  const int each = way.replicas / way.copies;
  const bool fits = all.nodes == 1 || all.a_node % each == 0;
  const int nodes = fits ? 1 : std::max(2, (each + all.a_node - 1) / all.a_node);
  return {nodes, (each + nodes - 1) / nodes};
}

Ranks ranks_of_part(const Way& way, const Machine& machine) {
  const Ranks all = ranks_of(way, machine), copy = ranks_of_copy(way, machine);
  const int a_node = copy.nodes > 1 ? 1 : std::max(1, all.a_node / copy.a_node);
  return {(way.copies + a_node - 1) / a_node, a_node};
}

double sent_bytes(double bytes, const Way& way) {
  return way.sent_as == SentAs::kAsTheyAre ? bytes : bytes / 2;
}

double reduce_seconds(double bytes, const Way& way, const Machine& machine) {
  const Ranks ranks = ranks_of(way, machine);
  return all_reduce_seconds(
      sent_bytes(bytes, way), ranks, machine, usual_all_reduce(ranks, machine));
}

double reduce_core_share(double bytes, const Way& way, const Machine& machine) {
  const Ranks ranks = ranks_of(way, machine);
  return core_share(sent_bytes(bytes, way), ranks, machine, usual_all_reduce(ranks, machine));
}

std::vector<ShardedUnit> sharded_units(const ModelProfile& profile, const Way& way) {
  std::vector<std::int64_t> bytes;
  for (const LayerCurves& layer : profile.layers)
    bytes.push_back(static_cast<std::int64_t>(layer.parameter_bytes()));
  std::vector<ShardedUnit> units;
  for (auto& layers : join_to_units(bytes, static_cast<std::int64_t>(way.unit_bytes))) {
    double all = 0;
    for (const std::size_t layer : layers) all += profile.layers[layer].parameter_bytes();
    units.push_back({.layers = std::move(layers),
        .bytes = all,
        .gathered = profile.precision.ends_with("-mixed") ? all / 2 : all});
  }
  return units;
}

std::vector<int> balance_of(const ModelProfile& profile, const Way& way, double batch) {
  if (!way.balance.empty()) return way.balance;
  const double samples = batch / way.replicas / way.micro_batches;
  std::vector<double> costs;
  for (const LayerCurves& layer : profile.layers) {
    costs.push_back(layer.forward(samples) + layer.backward(samples));
  }
  return partition(costs, way.scheduled_stages());
}

double memory_of(
    const ModelProfile& profile, const Machine& machine, const Way& way, double batch) {
  if (way.stages > 1) return memory_of_stages(profile, way, batch);
  const double samples = batch / way.replicas / way.accumulated;
  if (way.replication == Replication::kShards && way.replicas > 1)
    return memory_of_shards(profile, way, samples);
  return profile.process_bytes + profile.parameter_bytes() * bytes_a_parameter_byte(profile, way) +
         samples * kept_bytes(profile, way) + exchange_bytes(profile, machine, way);
}

Prediction predict(
    const ModelProfile& profile, const Machine& machine, const Way& way, double batch) {
  check_profile(profile);
  check_machine(machine);
  const std::string reason = why_not(way, profile, batch, machine);
  check(reason.empty(), "plan: ", describe(way), ": ", reason);
  Prediction prediction = way.stages > 1 ? stage_step(profile, machine, way, batch)
                                         : replica_step(profile, machine, way, batch);
  prediction.way = way;
  prediction.batch = batch;
  const Spreads spreads = spreads_of(profile, machine, way, batch);
  prediction.spread = spreads.all;
  prediction.own_spread = spreads.own;
  prediction.outside_spread = spreads.outside;
  prediction.memory_bytes = memory_of(profile, machine, way, batch);
  return prediction;
}

double Prediction::least_seconds() const { return seconds * std::exp(-kOneInTwenty * spread); }
double Prediction::most_seconds() const { return seconds * std::exp(kOneInTwenty * spread); }

}  // namespace lockstep::plan
