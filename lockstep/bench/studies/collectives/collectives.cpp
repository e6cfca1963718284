#include "lockstep/bench/studies/collectives/collectives.h"

#include "lockstep/bench/collectives/sweep_line.h"
#include "lockstep/bench/page/section.h"
#include "lockstep/bench/studies/collectives/collective_conclusion.h"
#include "lockstep/bench/studies/collectives/collective_figures.h"
#include "lockstep/bench/studies/collectives/collective_panels.h"
#include "lockstep/bench/studies/collectives/collective_tables.h"
#include "lockstep/bench/studies/collectives/sweep_grid.h"
#include "lockstep/bench/studies/sample_table.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

constexpr int kQuickRounds = 2;
constexpr int kFullRounds = 6;       // the first number whose interval is sure with 95 %
constexpr double kQuickLimit = 120;  // seconds; a sample takes about two
constexpr double kFullLimit = 30.0 * 60;

page::Section tell(const Study& study, std::span<const Sample> samples) {
  const auto panels = collective_panels(study, samples);
  auto tables = collective_tables(panels);
  tables.push_back(sample_table(
      study, cell_results(study, samples),
      {{"smallest_microseconds", "smallest [µs]"}, {"largest_milliseconds", "largest [ms]"}}));
  return {
      .title = study.title,
      .question = study.question,
      .conclusion = collective_conclusion(panels),
      .tables = std::move(tables),
      .figures = collective_figures(panels)};
}

std::string setting_of(const StudyCell& cell, const std::string& name) {
  for (const Setting& setting : cell.settings) {
    if (setting.name == name) return setting.value;
  }
  return "";
}

std::map<std::string, double> values_of(const StudyCell& cell, const std::filesystem::path& run) {
  const std::string op = setting_of(cell, "op");
  std::map<std::string, double> values;
  for (const SweepLine& line : read_sweep(run / kSweepFile)) {
    if (name_of(line.collective) != op) continue;
    values[seconds_value(line.bytes)] = line.median_seconds();
    values[copy_value(line.bytes)] = line.median_copy_seconds();
  }
  const auto sizes = sweep_sizes(std::stoll(setting_of(cell, "largest")));
  for (const std::int64_t bytes : sizes) {
    if (values.contains(seconds_value(bytes))) continue;
    throw DataError(concat(kSweepFile, ": has no result of ", op, " of ", bytes, " bytes"));
  }
  values["smallest_microseconds"] = values[seconds_value(sizes.front())] * 1e6;
  values["largest_milliseconds"] = values[seconds_value(sizes.back())] * 1e3;
  return values;
}

}  // namespace

Study collectives_study(const StudyOptions& options) {
  Study study{
      .name = "collectives",
      .title = "Collectives: shared memory and threads against Gloo",
      .question =
          "At which sizes of a message are collectives over shared memory faster than over Gloo, "
          "and how near do they come to the rate of a copy?",
      .cells = {},
      .rounds = options.rounds > 0 ? options.rounds
                : options.full     ? kFullRounds
                                   : kQuickRounds,
      .limit_seconds = options.full ? kFullLimit : kQuickLimit,
      .values = values_of,
      .tell = tell};
  for (const SweepPoint& point : sweep_grid(options.full)) {
    study.cells.push_back(sweep_cell(point, options));
  }
  return study;
}

}  // namespace lockstep::bench
