#include "lockstep/bench/planning/beside_run.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/bench/planning/plan_section.h"
#include "lockstep/bench/report/profile_page.h"
#include "lockstep/bench/statistics/estimate_text.h"
#include "lockstep/bench/study/table_of.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using plan::Use;

constexpr double kMilli = 1e-3;

struct UseRow {
  std::string use;
  double predicted, measured;  // seconds
};

double computing(const LaneProfile& lane) {
  return lane.of(StepPhase::kForward) + lane.of(StepPhase::kBackward);
}

// Of a pipeline's threads the main one only waits for the others.
const LaneProfile& busiest(const RankProfile& rank) {
  check(!rank.lanes.empty(), "plan: --beside: the profile has no threads");
  return *std::max_element(
      rank.lanes.begin(), rank.lanes.end(), [](const LaneProfile& one, const LaneProfile& other) {
        return computing(one) < computing(other);
      });
}

std::vector<UseRow> rows_of(const plan::Prediction& prediction, const RankProfile& rank) {
  const LaneProfile& lane = busiest(rank);
  const auto measured = [&](std::initializer_list<StepPhase> phases) {
    double sum = 0;
    for (const StepPhase phase : phases) sum += lane.of(phase);
    return sum * kMilli;
  };
  using P = StepPhase;
  return {{"input", prediction.of(Use::kInput), measured({P::kInput, P::kCopy})},
      {"forward", prediction.of(Use::kForward), measured({P::kForward})},
      {"backward", prediction.of(Use::kBackward), measured({P::kBackward})},
      {"exchange and waiting", prediction.of(Use::kCommunication) + prediction.idle,
          measured({P::kCommunication, P::kIdle, P::kStages})},
      {"optimizer", prediction.of(Use::kOptimizer), measured({P::kOptimizer})},
      {"other", prediction.of(Use::kRest), measured({P::kOther})},
      {"step", prediction.seconds, rank.step * kMilli}};
}

}  // namespace

page::Table beside_table(const plan::Prediction& prediction, const RunProfile& profile) {
  return TableOf<UseRow>("plan-beside", "The step as predicted, and as a run made it [ms]")
      .name("use", &UseRow::use)
      .number("predicted", [](const UseRow& row) { return milliseconds_text(row.predicted); })
      .number("measured", [](const UseRow& row) { return milliseconds_text(row.measured); })
      .number("difference",
          [](const UseRow& row) { return milliseconds_text(row.predicted - row.measured); })
      .notes({concat("predicted of the busiest place by ", describe(prediction.way),
          ", measured of the busiest thread of rank 0; a profile makes a step somewhat longer")})
      .of(rows_of(prediction, profile.ranks.front()));
}

std::vector<plot::Timeline> beside_timelines(
    const plan::Prediction& prediction, const RunProfile& profile) {
  std::vector<plot::Timeline> timelines{timeline_of(prediction, "plan-predicted")};
  const RankProfile& rank = profile.ranks.front();
  if (rank.timeline.empty()) return timelines;
  plot::Timeline measured = timeline_of(rank);
  measured.title = "The same step as it was measured, rank 0";
  timelines.push_back(std::move(measured));
  const double longest = std::max(timelines[0].length, timelines[1].length);
  for (plot::Timeline& timeline : timelines) timeline.length = longest;
  return timelines;
}

}  // namespace lockstep::bench
