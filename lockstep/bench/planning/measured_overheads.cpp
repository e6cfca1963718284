#include "lockstep/bench/planning/measured_overheads.h"

#include <algorithm>

#include "lockstep/bench/statistics/median.h"
#include "lockstep/plan/prediction.h"

namespace lockstep::bench {
namespace {

constexpr int kPlaces = 2;

double predicted(const plan::ModelProfile& profile, const plan::Way& way, double batch) {
  const plan::Machine machine{.places = kPlaces, .within = profile.within};
  return predict(profile, machine, way, batch).seconds;
}

// How much longer the runs take than predicted; `times` is how often a step pays the difference.
plan::CostCurve beyond_prediction(const std::vector<ProfiledRun>& runs,
    const plan::ModelProfile& profile, const plan::Way& way, int times) {
  std::vector<plan::CostCurve::Point> points;
  for (const ProfiledRun& run : runs) {
    const double more =
        median(run.step_seconds) - predicted(profile, way, run.batch * way.replicas);
    points.push_back({run.batch, std::max(0.0, more) / times});
  }
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

}  // namespace

plan::Overheads overheads_of(const ProfiledRuns& runs, const plan::ModelProfile& profile) {
  const plan::Way threads{.replicas = kPlaces, .replication = plan::Replication::kThreads};
  const plan::Way stages{.stages = kPlaces, .schedule = ScheduleKind::kSequential};
  // A step of two stages hands over twice: forward and backward.
  return {.hand_over = beyond_prediction(runs.stages, profile, stages, 2),
      .threads = beyond_prediction(runs.threads, profile, threads, 1),
      .socket_core = socket_core(runs, profile)};
}

}  // namespace lockstep::bench
