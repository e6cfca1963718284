#include "lockstep/bench/planning/measured_overheads.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "lockstep/bench/planning/compared_seconds.h"
#include "lockstep/bench/statistics/median.h"
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
// sockets need besides makes the step longer; what shared memory needs is known.
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

}  // namespace

void add_overheads(const ProfiledRuns& runs, plan::ModelProfile& profile) {
  plan::Overheads& overheads = profile.overheads;
  overheads.hand_over = hand_over(runs, profile);
  overheads.threads = meeting(runs, profile);
  overheads.socket_core = socket_core(runs, profile);
  overheads.replica_bytes = more_bytes(runs.pairs, runs.alone);
  overheads.socket_bytes = more_bytes(runs.sockets, runs.alone);
  profile.company.crowded = crowding(runs, profile);
}

}  // namespace lockstep::bench
