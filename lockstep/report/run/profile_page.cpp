#include "lockstep/report/run/profile_page.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/report/text_table.h"

namespace lockstep::bench {
namespace {

constexpr double kGigaFlop = 1e9;

// Without the digits that short cells have to tell small values from 0.
std::string milliseconds(double value) { return cell(std::round(100 * value) / 100, 2); }

bool is_quiet(StepPhase phase) {
  return phase == StepPhase::kStages || phase == StepPhase::kIdle || phase == StepPhase::kOther;
}

std::string thread_of(const RankProfile& rank, const LaneProfile& lane) {
  return concat("rank ", rank.rank, lane.is_main ? "" : ", ", lane.is_main ? "" : lane.thread);
}

page::Table phases_table(const RunProfile& profile) {
  page::Table table{.id = "profile_phases",
      .title = "Where a step's time went",
      .columns = {{"thread", true}, {"step [ms]"}},
      .rows = {}};
  const bool has_waits = profile.ranks.front().unwaited_step.has_value();
  if (has_waits) table.columns.push_back({"step without waits [ms]"});
  const std::vector<StepPhase> phases = shown_phases(profile);
  for (const StepPhase phase : phases) table.columns.push_back({concat(name_of(phase), " [ms]")});
  for (const RankProfile& rank : profile.ranks) {
    for (const LaneProfile& lane : rank.lanes) {
      std::vector<std::string> row{thread_of(rank, lane), milliseconds(rank.step)};
      if (has_waits) row.push_back(milliseconds(rank.unwaited_step.value_or(0)));
      for (const StepPhase phase : phases) row.push_back(milliseconds(lane.of(phase)));
      table.rows.push_back(std::move(row));
    }
  }
  return table;
}

page::Table layers_table(const RankProfile& rank) {
  page::Table table{.id = "profile_layers",
      .title = concat("Layers of rank ", rank.rank, ", summed over its threads"),
      .columns = {{"layer", true}, {"forward [ms]"}, {"backward [ms]"}, {"GFLOP"}},
      .rows = {}};
  for (const LayerProfile& layer : rank.layers)
    table.rows.push_back(
        {layer.name.empty() ? "outside of layers" : layer.name, milliseconds(layer.forward),
            milliseconds(layer.backward), cell(layer.flops / kGigaFlop, 3)});
  return table;
}

}  // namespace

std::vector<plot::Timeline::Kind> kinds_of_phases() {
  std::vector<plot::Timeline::Kind> kinds;
  for (const auto& phase : names_of(StepPhase{}))
    kinds.push_back({std::string(phase.name), is_quiet(phase.value)});
  return kinds;
}

// The ranks begin their steps together, but each shows the one that is its own median.
plot::Timeline timeline_of(const RankProfile& rank) {
  plot::Timeline timeline{.id = concat("profile-rank-", rank.rank),
      .title = concat("One step of rank ", rank.rank),
      .unit = "milliseconds",
      .rows = {},
      .kinds = {}};
  timeline.kinds = kinds_of_phases();
  for (const LaneProfile& lane : rank.lanes)
    timeline.rows.push_back(lane.is_main ? "main" : lane.thread);
  for (const TimelineSpan& box : rank.timeline) {
    if (box.lane == rank.lanes.size() && timeline.rows.size() == rank.lanes.size())
      timeline.rows.emplace_back("gradients on their way");
    timeline.length = std::max(timeline.length, box.end);
    timeline.boxes.push_back({.row = box.lane,
        .kind = static_cast<std::size_t>(box.phase),
        .begin = std::max(0.0, box.begin),
        .end = box.end,
        .name = box.name});
  }
  return timeline;
}

page::Section section_of_profile(const RunProfile& profile) {
  page::Section section{.title = "Profile",
      .question = "Where does the time of a step go?",
      .conclusion = {.answer = arithmetic_text(profile)},
      .tables = {phases_table(profile), layers_table(profile.ranks.front())}};
  for (const RankProfile& rank : profile.ranks)
    if (!rank.timeline.empty()) section.timelines.push_back(timeline_of(rank));
  return section;
}

}  // namespace lockstep::bench
