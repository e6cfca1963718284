#include "bench/planning/profile_of_runs.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>
#include <vector>

#include "bench/statistics/median.h"
#include "lockstep/core/error.h"
#include "lockstep/plan/prediction.h"

namespace lockstep::bench {
namespace {

CostLine only_slower(const std::vector<ComparedSeconds>& measured) {
  std::vector<double> ratios;
  for (const auto& [expected, seconds] : measured) ratios.push_back(seconds / expected);
  return {.slowdown = std::max(1.0, median(ratios))};
}

std::string backend_of(const std::vector<SweepLine>& lines, const std::string& where) {
  std::set<std::string> backends;
  for (const SweepLine& line : lines) backends.insert(line.backend);
  if (backends.size() == 1) return *backends.begin();
  if (backends.contains("gloo")) return "gloo";
  throw DataError(concat(where, ": has ", backends.size(),
      " backends and no gloo; a link is measured by lockstep collectives --backend gloo"));
}

double messages_of(const SweepLine& line) { return 2.0 * (line.ranks - 1); }

// Long messages are those that a core may have time beside.
double core_share_of(const SweepLine& longest) {
  return std::min(1.0, longest.core_seconds.value_or(0) / longest.median_seconds());
}

constexpr int kPlaces = 2;
constexpr double kSecondsAMillisecond = 1e-3;
// A message within a node, where it is not measured: the shared memory's.
constexpr double kSharedLatency = 20e-6;

using Runs = std::vector<ProfiledRun>;

plan::CostCurve curve_of(const Runs& runs, const auto& seconds) {
  std::vector<plan::CostCurve::Point> points;
  for (const ProfiledRun& run : runs) points.push_back({run.batch, seconds(run)});
  return plan::CostCurve(std::move(points));
}

// Calls `use` with each run and the other that had the same batch.
void for_same_batch(const Runs& runs, const Runs& others, const auto& use) {
  for (const ProfiledRun& run : runs) {
    for (const ProfiledRun& other : others)
      if (other.batch == run.batch) use(run, other);
  }
}

double median_or(double usual, const std::vector<double>& values) {
  return values.empty() ? usual : median(values);
}

const LaneProfile& main_lane(const RankProfile& rank) {
  const auto found = std::ranges::find_if(rank.lanes, &LaneProfile::is_main);
  if (found == rank.lanes.end()) throw DataError("plan: a profile has no thread that makes steps");
  return *found;
}

/// One run's times in seconds, as its steps take them without a profile.
class Times {
 public:
  explicit Times(const ProfiledRun& run)
      : rank_(run.profile.ranks.front()), lane_(main_lane(rank_)) {
    const double plain = median_or(0, run.step_seconds);
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
  double of_layer(std::size_t layer, double LayerCosts::*time) const {
    const bool is_forward = time == &LayerCosts::forward;
    double all = 0;
    for (const LayerCosts& each : rank_.chain) all += is_forward ? each.forward : each.backward;
    const double whole = of(is_forward ? StepPhase::kForward : StepPhase::kBackward);
    return all > 0 ? whole * (rank_.chain[layer].*time) / all : 0;
  }

 private:
  const RankProfile& rank_;
  const LaneProfile& lane_;
  double scale_ = 1;
};

void check_chains(const Runs& runs) {
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

std::vector<plan::LayerCurves> layers_of(const Runs& runs) {
  // Of the largest batch: small ones round up to whole pages.
  const RankProfile& rank = runs.back().profile.ranks.front();
  const auto samples = static_cast<double>(rank.batch);
  std::vector<plan::LayerCurves> layers;
  for (std::size_t i = 0; i < rank.chain.size(); ++i) {
    const LayerCosts& layer = rank.chain[i];
    const auto curve = [&](double LayerCosts::*time) {
      return curve_of(runs, [&](const ProfiledRun& run) { return Times(run).of_layer(i, time); });
    };
    layers.push_back({.name = layer.name,
        .forward = curve(&LayerCosts::forward),
        .backward = curve(&LayerCosts::backward),
        .backward_input = curve(&LayerCosts::backward_input),
        .backward_weight = curve(&LayerCosts::backward_weight),
        .activation_bytes = static_cast<double>(layer.activation_bytes) / samples,
        .output_bytes = static_cast<double>(layer.output_bytes) / samples,
        .parameters = {layer.parameter_bytes.begin(), layer.parameter_bytes.end()}});
  }
  return layers;
}

// Peak memory has more than what layers keep: what a kernel needs while it runs. One batch does not
// tell that from what the process needs: then a sample has what its layers keep.
void fit_memory(const Runs& runs, plan::ModelProfile& profile) {
  const double kept = profile.activation_bytes();
  const auto line = curve_of(runs, [](const ProfiledRun& run) { return run.peak_bytes; }).line();
  double fixed = std::max(0.0, line.fixed);
  if (runs.size() == 1) {
    fixed = runs.front().peak_bytes - kept * runs.front().batch;
  } else if (kept > 0 && line.per_sample > 0) {
    for (plan::LayerCurves& layer : profile.layers)
      layer.activation_bytes *= line.per_sample / kept;
  }
  profile.process_bytes =
      std::max(0.0, fixed - (2 + profile.state_copies) * profile.parameter_bytes());
}

double least_exchange(const Runs& pairs) {
  std::vector<double> seconds;
  for (const ProfiledRun& pair : pairs) {
    double least = Times(pair).of(StepPhase::kCommunication);
    for (const RankProfile& rank : pair.profile.ranks)
      least = std::min(least, main_lane(rank).of(StepPhase::kCommunication) * kSecondsAMillisecond);
    seconds.push_back(least);
  }
  return median_or(0, seconds);
}

void fit_company(const Runs& alone, const Runs& pairs, plan::ModelProfile& profile) {
  if (pairs.empty()) return;
  std::vector<ComparedSeconds> computing;
  std::vector<double> slowed_optimizers;
  for_same_batch(pairs, alone, [&](const ProfiledRun& pair, const ProfiledRun& one) {
    const Times both(pair), single(one);
    if (single.computing() > 0 && both.computing() > 0)
      computing.push_back({single.computing(), both.computing()});
    if (const double seconds = single.of(StepPhase::kOptimizer); seconds > 0)
      slowed_optimizers.push_back(both.of(StepPhase::kOptimizer) / seconds);
  });
  const CostLine line = cost_line(computing);
  profile.company.compute.push_back(line.slowdown);
  const double bytes = profile.parameter_bytes();
  profile.overheads.gradient_core = bytes > 0 ? line.fixed / bytes : 0;
  profile.company.memory.push_back(std::max(1.0, median_or(1, slowed_optimizers)));
  const double seconds = least_exchange(pairs) - 2 * kSharedLatency;
  profile.within.latency = kSharedLatency;
  profile.within.core_share = 1;
  if (seconds > 0) profile.within.bytes_per_second = bytes / seconds;
}

double predicted(const plan::ModelProfile& profile, const plan::Way& way, double batch) {
  const plan::Machine machine{.places = kPlaces, .within = profile.within};
  return predict(profile, machine, way, batch).seconds;
}

std::vector<ComparedSeconds> with_predictions(
    const Runs& runs, const plan::ModelProfile& profile, const plan::Way& way) {
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
  return curve_of(runs.stages, [&](const ProfiledRun&) { return seconds; });
}

// Threads wait for the slowest of them, the longer the longer they compute.
plan::CostCurve meeting(const ProfiledRuns& runs, const plan::ModelProfile& profile) {
  const plan::Way threads{.replicas = kPlaces, .replication = plan::Replication::kThreads};
  const CostLine line = cost_line(with_predictions(runs.threads, profile, threads));
  return curve_of(runs.threads, [&](const ProfiledRun& run) {
    return (line.slowdown - 1) * predicted(profile, threads, run.batch * kPlaces) + line.fixed;
  });
}

// Two ranks send as many bytes as the gradients have. Both cores are busy, so that whatever
// sockets need on top makes the step longer; what shared memory needs is known.
double socket_core(const ProfiledRuns& runs, const plan::ModelProfile& profile) {
  const double bytes = profile.parameter_bytes();
  if (bytes == 0) return 0;
  std::vector<double> costs;
  for_same_batch(runs.sockets, runs.pairs, [&](const ProfiledRun& run, const ProfiledRun& shared) {
    const double alone = median(shared.step_seconds) - profile.within.seconds(bytes);
    costs.push_back(std::max(0.0, median(run.step_seconds) - alone) / bytes);
  });
  return median_or(0, costs);
}

double more_bytes(const Runs& runs, const Runs& alone) {
  std::vector<double> bytes;
  for_same_batch(runs, alone, [&](const ProfiledRun& run, const ProfiledRun& one) {
    bytes.push_back(std::max(0.0, run.peak_bytes - one.peak_bytes));
  });
  return median_or(0, bytes);
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
  return median_or(1, factors);
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

double noise_of(const Runs& runs) {
  std::vector<double> spreads;
  for (const ProfiledRun& run : runs) {
    if (run.step_seconds.size() < 2) continue;
    const auto [least, most] = std::ranges::minmax(run.step_seconds);
    spreads.push_back((most - least) / (most + least));
  }
  return median_or(0, spreads);
}

double optimizer_seconds(const Runs& runs) {
  std::vector<double> seconds;
  for (const ProfiledRun& run : runs) seconds.push_back(Times(run).of(StepPhase::kOptimizer));
  return median(seconds);
}

double of_sample(const ProfiledRun& run, double RankProfile::*flops) {
  const RankProfile& rank = run.profile.ranks.front();
  return rank.batch > 0 ? rank.*flops / static_cast<double>(rank.batch) : 0;
}

}  // namespace

CostLine cost_line(const std::vector<ComparedSeconds>& measured) {
  if (measured.empty()) return {};
  // slowdown * expected + fixed should be what was measured, each divided by that.
  double x = 0, y = 0, xx = 0, xy = 0, yy = 0;
  for (const auto& [expected, seconds] : measured) {
    x += expected / seconds;
    y += 1 / seconds;
    xx += expected / seconds * expected / seconds;
    xy += expected / seconds / seconds;
    yy += 1 / seconds / seconds;
  }
  const double area = xx * yy - xy * xy;
  if (area <= 1e-6 * xx * yy) return only_slower(measured);
  const CostLine line{(x * yy - y * xy) / area, (y * xx - x * xy) / area};
  if (line.slowdown < 1) return {.fixed = fixed_cost(measured)};
  return line.fixed < 0 ? only_slower(measured) : line;
}

double fixed_cost(const std::vector<ComparedSeconds>& measured) {
  double more = 0, weights = 0;
  for (const auto& [expected, seconds] : measured) {
    more += (seconds - expected) / seconds / seconds;
    weights += 1 / seconds / seconds;
  }
  return weights > 0 ? std::max(0.0, more / weights) : 0;
}

plan::Link link_of_sweep(const std::vector<SweepLine>& lines, const std::string& where) {
  const std::string backend = backend_of(lines, where);
  std::vector<SweepLine> own;
  for (const SweepLine& line : lines) {
    const bool counts = line.collective == Collective::kAllReduce && line.backend == backend;
    if (counts && line.ranks > 1) own.push_back(line);
  }
  std::ranges::sort(
      own, [](const SweepLine& one, const SweepLine& other) { return one.bytes < other.bytes; });
  if (own.size() < 2)
    throw DataError(concat(where, ": has no all_reduce of two sizes by ", backend,
        "; a link is measured by lockstep collectives --op all_reduce"));
  std::vector<plan::CostCurve::Point> points;
  for (const SweepLine& line : own)
    points.push_back(
        {static_cast<double>(line.bytes) / line.ranks, line.median_seconds() / messages_of(line)});
  plan::Link link{.latency = points.front().seconds,
      .bytes_per_second = points.back().batch / points.back().seconds,
      .core_share = core_share_of(own.back())};
  try {
    link.measured = plan::CostCurve(std::move(points));
  } catch (const InvalidArgument& error) {
    throw DataError(concat(where, ": ", error.what()));
  }
  return link;
}

plan::ModelProfile profile_of_runs(const ProfiledRuns& all, const ProfileFacts& facts) {
  check(!all.alone.empty(), "plan: a profile is made of runs");
  Runs runs = all.alone;
  std::ranges::sort(runs, {}, &ProfiledRun::batch);
  check_chains(runs);
  plan::ModelProfile profile{.model = facts.model,
      .precision = facts.precision,
      .device = facts.device,
      .source = facts.source,
      .is_measured = true,
      .layers = layers_of(runs),
      .input = curve_of(runs, [](const ProfiledRun& run) { return Times(run).input(); }),
      .rest = curve_of(runs, [](const ProfiledRun& run) { return Times(run).rest(); }),
      .optimizer = optimizer_seconds(runs),
      .state_copies = facts.state_copies,
      .noise = noise_of(runs),
      .flops = of_sample(runs.back(), &RankProfile::flops),
      .product_flops = of_sample(runs.back(), &RankProfile::product_flops)};
  profile.company.cores = facts.cores;
  fit_memory(runs, profile);
  fit_company(runs, all.pairs, profile);
  add_overheads(all, profile);
  profile.knows_within = !all.pairs.empty();
  plan::check_profile(profile);
  return profile;
}

}  // namespace lockstep::bench
