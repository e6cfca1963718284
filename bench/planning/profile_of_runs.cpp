#include "bench/planning/profile_of_runs.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "bench/planning/compared_seconds.h"
#include "bench/statistics/median.h"
#include "lockstep/core/error.h"
#include "lockstep/plan/prediction.h"

namespace lockstep::bench {
namespace {

constexpr int kPlaces = 2;

double predicted(const plan::ModelProfile& profile, const plan::Way& way, double batch) {
  const plan::Machine machine{.places = kPlaces, .within = profile.within};
  return predict(profile, machine, way, batch).seconds;
}

std::vector<ComparedSeconds> with_predictions(
    const std::vector<ProfiledRun>& runs, const plan::ModelProfile& profile, const plan::Way& way) {
  std::vector<ComparedSeconds> compared;
  for (const ProfiledRun& run : runs)
    compared.push_back(
        {predicted(profile, way, run.batch * way.replicas), median(run.step_seconds)});
  return compared;
}

// A step of two stages hands over twice: forward and backward. The difference of two noisy steps is
// no more than noise where they are long, so that all batches have one cost.
plan::CostCurve hand_over(const ProfiledRuns& runs, const plan::ModelProfile& profile) {
  const plan::Way stages{.stages = kPlaces, .schedule = ScheduleKind::kSequential};
  const double seconds = fixed_cost(with_predictions(runs.stages, profile, stages)) / 2;
  std::vector<plan::CostCurve::Point> points;
  for (const ProfiledRun& run : runs.stages) points.push_back({run.batch, seconds});
  return plan::CostCurve(std::move(points));
}

// Threads wait for the slowest of them, the longer the longer they compute.
plan::CostCurve meeting(const ProfiledRuns& runs, const plan::ModelProfile& profile) {
  const plan::Way threads{.replicas = kPlaces, .replication = plan::Replication::kThreads};
  const auto compared = with_predictions(runs.threads, profile, threads);
  const CostLine line = cost_line(compared);
  std::vector<plan::CostCurve::Point> points;
  for (std::size_t i = 0; i < compared.size(); ++i)
    points.push_back(
        {runs.threads[i].batch, (line.slowdown - 1) * compared[i].expected + line.fixed});
  return plan::CostCurve(std::move(points));
}

const ProfiledRun* of_batch(const std::vector<ProfiledRun>& runs, double batch) {
  const auto found = std::find_if(
      runs.begin(), runs.end(), [&](const ProfiledRun& run) { return run.batch == batch; });
  return found == runs.end() ? nullptr : &*found;
}

// Two ranks send as many bytes as the gradients have. Both cores are busy, so that whatever
// sockets need on top makes the step longer; what shared memory needs is known.
double socket_core(const ProfiledRuns& runs, const plan::ModelProfile& profile) {
  std::vector<double> costs;
  for (const ProfiledRun& run : runs.sockets) {
    const ProfiledRun* const shared = of_batch(runs.pairs, run.batch);
    if (shared == nullptr || profile.parameter_bytes() == 0) continue;
    const double exchange = profile.within.seconds(profile.parameter_bytes());
    const double alone = median(shared->step_seconds) - exchange;
    costs.push_back(std::max(0.0, median(run.step_seconds) - alone) / profile.parameter_bytes());
  }
  return costs.empty() ? 0 : median(costs);
}

double more_bytes(const std::vector<ProfiledRun>& runs, const std::vector<ProfiledRun>& alone) {
  std::vector<double> bytes;
  for (const ProfiledRun& run : runs) {
    if (const ProfiledRun* const one = of_batch(alone, run.batch))
      bytes.push_back(std::max(0.0, run.peak_bytes - one->peak_bytes));
  }
  return bytes.empty() ? 0 : median(bytes);
}

// How many times as long the cores' work has to take for the prediction to be right. All runs had
// the cores of two places, whatever the node has.
double crowding(const ProfiledRuns& runs, plan::ModelProfile profile) {
  profile.company.cores = kPlaces;
  const plan::Way way{.replicas = kCrowdedRanks};
  const plan::Machine machine{.places = kCrowdedRanks, .within = profile.within};
  std::vector<double> factors;
  for (const ProfiledRun& run : runs.crowds) {
    const auto step = plan::predict(profile, machine, way, run.batch * way.replicas);
    const double busy = step.seconds - step.idle - step.of(plan::Use::kCommunication);
    factors.push_back(1 + std::max(0.0, median(run.step_seconds) - step.seconds) / busy);
  }
  return factors.empty() ? 1 : median(factors);
}

/// Adds to a profile, which has all the rest, what ways cost beyond what is predicted of them with
/// it: overheads, and the cost of sharing cores. Where no run tells, they are free.
void add_overheads(const ProfiledRuns& runs, plan::ModelProfile& profile) {
  plan::Overheads& overheads = profile.overheads;
  overheads.hand_over = hand_over(runs, profile);
  overheads.threads = meeting(runs, profile);
  overheads.socket_core = socket_core(runs, profile);
  overheads.replica_bytes = more_bytes(runs.pairs, runs.alone);
  overheads.socket_bytes = more_bytes(runs.sockets, runs.alone);
  profile.company.crowded = crowding(runs, profile);
}

constexpr double kSecondsAMillisecond = 1e-3;
// A message within a node, where it is not measured: the shared memory's.
constexpr double kSharedLatency = 20e-6;

using Points = std::vector<plan::CostCurve::Point>;

const LaneProfile& main_lane(const RankProfile& rank) {
  const auto found = std::find_if(
      rank.lanes.begin(), rank.lanes.end(), [](const LaneProfile& lane) { return lane.is_main; });
  if (found == rank.lanes.end()) throw DataError("plan: a profile has no thread that makes steps");
  return *found;
}

/// One run's times in seconds, as its steps take them without a profile.
class Times {
 public:
  explicit Times(const ProfiledRun& run)
      : rank_(run.profile.ranks.front()), lane_(main_lane(rank_)) {
    const double plain = run.step_seconds.empty() ? 0 : median(run.step_seconds);
    scale_ = plain > 0 ? plain / rank_.step : kSecondsAMillisecond;
  }

  double step() const { return rank_.step * scale_; }
  double of(StepPhase phase) const { return lane_.of(phase) * scale_; }
  double input() const { return of(StepPhase::kInput) + of(StepPhase::kCopy); }
  double computing() const { return of(StepPhase::kForward) + of(StepPhase::kBackward); }
  double rest() const {
    return std::max(0.0,
        step() - input() - computing() - of(StepPhase::kOptimizer) - of(StepPhase::kCommunication));
  }

  /// A layer's time alone, as a share of all layers', of the phase's time.
  double of_layer(std::size_t layer, StepPhase phase, double ChainLayer::*time) const {
    double all = 0;
    const auto whole = phase == StepPhase::kForward ? &ChainLayer::forward : &ChainLayer::backward;
    for (const ChainLayer& each : rank_.chain) all += each.*whole;
    return all > 0 ? of(phase) * (rank_.chain[layer].*time) / all : 0;
  }

 private:
  const RankProfile& rank_;
  const LaneProfile& lane_;
  double scale_ = 1;
};

plan::CostCurve curve_of(
    const std::vector<ProfiledRun>& runs, const std::function<double(const Times&)>& seconds) {
  Points points;
  for (const ProfiledRun& run : runs) points.push_back({run.batch, seconds(Times(run))});
  return plan::CostCurve(std::move(points));
}

plan::CostCurve layer_curve(const std::vector<ProfiledRun>& runs, std::size_t layer,
    StepPhase phase, double ChainLayer::*time) {
  return curve_of(runs, [&](const Times& times) { return times.of_layer(layer, phase, time); });
}

void check_chains(const std::vector<ProfiledRun>& runs) {
  for (const ProfiledRun& run : runs) {
    const auto& chain = run.profile.ranks.front().chain;
    if (chain.empty())
      throw DataError(
          "plan: the layers of this model were not measured: a net of several inputs, or one "
          "that cannot be cloned, cannot be planned for");
    if (chain.size() != runs.front().profile.ranks.front().chain.size())
      throw DataError("plan: the profiles are of different models");
  }
}

// The bytes that a sample more adds to a process, of the memory that it had at its peak.
std::pair<double, double> memory_line(const std::vector<ProfiledRun>& runs) {
  Points points;
  for (const ProfiledRun& run : runs) points.push_back({run.batch, run.peak_bytes});
  const auto line = plan::CostCurve(std::move(points)).line();
  return {std::max(0.0, line.fixed), std::max(0.0, line.per_sample)};
}

std::vector<plan::LayerCosts> layers_of(const std::vector<ProfiledRun>& runs) {
  // Of the largest batch: small ones round up to whole pages.
  const RankProfile& rank = runs.back().profile.ranks.front();
  std::vector<plan::LayerCosts> layers;
  for (std::size_t i = 0; i < rank.chain.size(); ++i) {
    const ChainLayer& layer = rank.chain[i];
    const auto backward = [&](double ChainLayer::*time) {
      return layer_curve(runs, i, StepPhase::kBackward, time);
    };
    const auto samples = static_cast<double>(rank.batch);
    layers.push_back({.name = layer.name,
        .forward = layer_curve(runs, i, StepPhase::kForward, &ChainLayer::forward),
        .backward = backward(&ChainLayer::backward),
        .backward_input = backward(&ChainLayer::backward_input),
        .backward_weight = backward(&ChainLayer::backward_weight),
        .activation_bytes = static_cast<double>(layer.activation_bytes) / samples,
        .output_bytes = static_cast<double>(layer.output_bytes) / samples,
        .parameters = {layer.parameters.begin(), layer.parameters.end()}});
  }
  return layers;
}

// Peak memory has more than what layers keep: what a kernel needs while it runs. One batch does not
// tell that from what the process needs: then a sample has what its layers keep.
void fit_memory(const std::vector<ProfiledRun>& runs, plan::ModelProfile& profile) {
  const double kept = profile.activation_bytes();
  auto [fixed, per_sample] = memory_line(runs);
  if (runs.size() == 1) {
    fixed = runs.front().peak_bytes - kept * runs.front().batch;
  } else if (kept > 0 && per_sample > 0) {
    for (plan::LayerCosts& layer : profile.layers) layer.activation_bytes *= per_sample / kept;
  }
  profile.process_bytes =
      std::max(0.0, fixed - (2 + profile.state_copies) * profile.parameter_bytes());
}

double median_ratio(const std::vector<ProfiledRun>& alone, const std::vector<ProfiledRun>& pairs,
    const std::function<double(const Times&)>& seconds) {
  std::vector<double> ratios;
  for (const ProfiledRun& pair : pairs) {
    for (const ProfiledRun& one : alone) {
      if (one.batch == pair.batch && seconds(Times(one)) > 0)
        ratios.push_back(seconds(Times(pair)) / seconds(Times(one)));
    }
  }
  return ratios.empty() ? 1 : std::max(1.0, median(ratios));
}

std::vector<ComparedSeconds> computing_of(
    const std::vector<ProfiledRun>& alone, const std::vector<ProfiledRun>& pairs) {
  std::vector<ComparedSeconds> seconds;
  for (const ProfiledRun& pair : pairs) {
    for (const ProfiledRun& one : alone) {
      const ComparedSeconds both{Times(one).computing(), Times(pair).computing()};
      if (one.batch == pair.batch && both.expected > 0 && both.measured > 0)
        seconds.push_back(both);
    }
  }
  return seconds;
}

double least_exchange(const std::vector<ProfiledRun>& pairs) {
  std::vector<double> seconds;
  for (const ProfiledRun& pair : pairs) {
    double least = Times(pair).of(StepPhase::kCommunication);
    for (const RankProfile& rank : pair.profile.ranks)
      least = std::min(least, main_lane(rank).of(StepPhase::kCommunication) * kSecondsAMillisecond);
    seconds.push_back(least);
  }
  return seconds.empty() ? 0 : median(seconds);
}

void fit_company(const std::vector<ProfiledRun>& alone, const std::vector<ProfiledRun>& pairs,
    plan::ModelProfile& profile) {
  if (pairs.empty()) return;
  const CostLine line = cost_line(computing_of(alone, pairs));
  profile.company.compute.push_back(line.slowdown);
  const double bytes = profile.parameter_bytes();
  profile.overheads.gradient_core = bytes > 0 ? line.fixed / bytes : 0;
  profile.company.memory.push_back(median_ratio(
      alone, pairs, [](const Times& times) { return times.of(StepPhase::kOptimizer); }));
  const double seconds = least_exchange(pairs) - 2 * kSharedLatency;
  profile.within.latency = kSharedLatency;
  profile.within.core_share = 1;
  if (seconds > 0) profile.within.bytes_per_second = bytes / seconds;
}

double noise_of(const std::vector<ProfiledRun>& runs) {
  std::vector<double> spreads;
  for (const ProfiledRun& run : runs) {
    const auto [least, most] =
        std::minmax_element(run.step_seconds.begin(), run.step_seconds.end());
    if (run.step_seconds.size() > 1) spreads.push_back((*most - *least) / (*most + *least));
  }
  return spreads.empty() ? 0 : median(spreads);
}

double median_of(const std::vector<ProfiledRun>& runs, StepPhase phase) {
  std::vector<double> seconds;
  for (const ProfiledRun& run : runs) seconds.push_back(Times(run).of(phase));
  return median(seconds);
}

double flops_of(const ProfiledRun& run) {
  const RankProfile& rank = run.profile.ranks.front();
  return rank.batch > 0 ? rank.flops / static_cast<double>(rank.batch) : 0;
}

std::vector<ProfiledRun> by_batch(std::vector<ProfiledRun> runs) {
  std::sort(runs.begin(), runs.end(),
      [](const ProfiledRun& one, const ProfiledRun& other) { return one.batch < other.batch; });
  return runs;
}

}  // namespace

plan::ModelProfile profile_of_runs(const ProfiledRuns& all, const ProfileFacts& facts) {
  check(!all.alone.empty(), "plan: a profile is made of runs");
  const std::vector<ProfiledRun> runs = by_batch(all.alone);
  check_chains(runs);
  plan::ModelProfile profile{.model = facts.model,
      .precision = facts.precision,
      .device = facts.device,
      .source = facts.source,
      .is_measured = true,
      .layers = layers_of(runs),
      .input = curve_of(runs, &Times::input),
      .rest = curve_of(runs, &Times::rest),
      .optimizer = median_of(runs, StepPhase::kOptimizer),
      .state_copies = facts.state_copies,
      .noise = noise_of(runs),
      .flops = flops_of(runs.back())};
  profile.company.cores = facts.cores;
  fit_memory(runs, profile);
  fit_company(runs, all.pairs, profile);
  add_overheads(all, profile);
  plan::check_profile(profile);
  return profile;
}

}  // namespace lockstep::bench
