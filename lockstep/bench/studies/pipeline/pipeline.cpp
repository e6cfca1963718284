#include "lockstep/bench/studies/pipeline/pipeline.h"

#include "lockstep/bench/page/section.h"
#include "lockstep/bench/studies/pipeline/grid.h"
#include "lockstep/bench/studies/pipeline/pipeline_cells.h"
#include "lockstep/bench/studies/pipeline/pipeline_conclusion.h"
#include "lockstep/bench/studies/pipeline/pipeline_figures.h"
#include "lockstep/bench/studies/pipeline/pipeline_tables.h"
#include "lockstep/bench/studies/pipeline/run_times.h"
#include "lockstep/bench/studies/sample_table.h"

namespace lockstep::bench {
namespace {

constexpr double kQuickLimit = 300;           // seconds; a sample takes a few
constexpr double kFullLimit = 2.0 * 60 * 60;  // seven batches of 120 on one slow core
constexpr int kQuickRounds = 2;
constexpr int kFullRounds = 5;  // of two repeats: the study's ten

page::Section tell(const Study& study, std::span<const Sample> samples) {
  const auto cells = pipeline_cells(study, samples);
  std::vector<CellResult> results;
  for (const PipelineCell& cell : cells) results.push_back(cell.result);
  return {
      .title = study.title,
      .question = study.question,
      .conclusion = pipeline_conclusion(cells),
      .tables =
          {run_time_table(cells), pipeline_speed_up_table(cells), pipeline_memory_table(cells),
           sample_table(study, results, {{kRunSeconds, "run [s]"}, {kRunRepeats, "repeats"}})},
      .figures = pipeline_figures(cells)};
}

}  // namespace

Study pipeline_study(const StudyOptions& options) {
  const int rounds = options.full ? kFullRounds : kQuickRounds;
  Study study{
      .name = "pipeline",
      .title = "Pipeline: ResNet50 cut over two places",
      .question =
          "What does it cost to cut a net over two places, and how much of it do a pipeline, its "
          "split size and its schedule win back?",
      .cells = {},
      .rounds = options.rounds > 0 ? options.rounds : rounds,
      .limit_seconds = options.full ? kFullLimit : kQuickLimit,
      .values =
          [](const StudyCell&, const std::filesystem::path& run) {
            return pipeline_values(run, kPipelineRunBatches);
          },
      .tell = tell};
  for (const PipelinePoint& point : pipeline_grid(options.full)) {
    study.cells.push_back(pipeline_cell(point, options));
  }
  return study;
}

}  // namespace lockstep::bench
