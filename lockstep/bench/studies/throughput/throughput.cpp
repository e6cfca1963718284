#include "lockstep/bench/studies/throughput/throughput.h"

#include "lockstep/bench/page/section.h"
#include "lockstep/bench/studies/machine_memory.h"
#include "lockstep/bench/studies/sample_table.h"
#include "lockstep/bench/studies/throughput/step_values.h"
#include "lockstep/bench/studies/throughput/throughput_conclusion.h"
#include "lockstep/bench/studies/throughput/throughput_figures.h"
#include "lockstep/bench/studies/throughput/throughput_grid.h"
#include "lockstep/bench/studies/throughput/throughput_tables.h"

namespace lockstep::bench {
namespace {

constexpr double kQuickLimit = 300;                // seconds; a sample takes some
constexpr double kFullLimit = 7.0 * 24 * 60 * 60;  // 5000 steps of 512 images on few cores: days

page::Section tell(const Study& study, std::span<const Sample> samples) {
  const auto cells = throughput_cells(study, samples);
  std::vector<CellResult> results;
  for (const ThroughputCell& cell : cells) results.push_back(cell.result);
  return {
      .title = study.title,
      .question = study.question,
      .conclusion = throughput_conclusion(cells),
      .tables =
          {sample_cost_table(cells), throughput_ratio_table(cells), throughput_way_table(cells),
           sample_table(
               study, results,
               {{kSecondsASample, "a sample [s]"},
                {"samples_per_s", "samples/s"},
                {"first_step_seconds", "first step [s]"},
                {"data_share", "waited for data"}})},
      .figures = throughput_figures(cells)};
}

}  // namespace

Study throughput_study(const StudyOptions& options) {
  Study study{
      .name = "throughput",
      .title = "Throughput: what a sample of ResNet50 costs",
      .question =
          "Does spreading a batch over places make a sample cheaper, or does it take a larger "
          "batch "
          "or half precision?",
      .cells = {},
      .rounds = options.rounds > 0 ? options.rounds : (options.full ? 3 : 2),
      .limit_seconds = options.full ? kFullLimit : kQuickLimit,
      .values = [](const StudyCell&, const std::filesystem::path& run) { return step_values(run); },
      .tell = tell};
  const auto memory = machine_memory();
  for (const ThroughputPoint& point : throughput_grid(options)) {
    study.cells.push_back(throughput_cell(point, options, memory));
  }
  return study;
}

}  // namespace lockstep::bench
