#include "lockstep/bench/studies/data_parallel/data_parallel.h"

#include <stdexcept>

#include "lockstep/bench/page/section.h"
#include "lockstep/bench/studies/data_parallel/conclusion.h"
#include "lockstep/bench/studies/data_parallel/epoch_figures.h"
#include "lockstep/bench/studies/data_parallel/epoch_tables.h"
#include "lockstep/bench/studies/data_parallel/epoch_values.h"
#include "lockstep/bench/studies/data_parallel/grid.h"
#include "lockstep/bench/studies/sample_table.h"
#include "lockstep/bench/studies/training_images.h"

namespace lockstep::bench {
namespace {

constexpr double kQuickLimit = 300;           // seconds; a sample takes about five
constexpr double kFullLimit = 6.0 * 60 * 60;  // the largest set on one slow core

page::Section tell(const Study& study, std::span<const Sample> samples) {
  const auto cells = epoch_cells(study, samples);
  std::vector<CellResult> results;
  for (const EpochCell& cell : cells) results.push_back(cell.result);
  return {
      .title = study.title,
      .question = study.question,
      .conclusion = epoch_conclusion(cells),
      .tables =
          {epoch_table(cells), speed_up_table(cells), dp_or_ddp_table(cells), learning_table(cells),
           sample_table(
               study, results,
               {{kFirstEpoch, "first epoch [s]"}, {kSecondEpoch, "second epoch [s]"}})},
      .figures = epoch_figures(cells)};
}

std::map<std::string, double> values_of(
    const std::string& data, const StudyCell& cell, const std::filesystem::path& run) {
  for (const Setting& setting : cell.settings) {
    if (setting.name == "repeat")
      return epoch_values(run, training_images(data) * std::stoi(setting.value));
  }
  throw std::logic_error("data-parallel: a cell without repeat");
}

}  // namespace

Study data_parallel_study(const StudyOptions& options) {
  Study study{
      .name = "data-parallel",
      .title = "Data parallel: MNIST's two nets over places",
      .question =
          "Does a second, a fourth place make an epoch shorter, and which way of spreading it is "
          "the quicker: DataParallel or DistributedDataParallel?",
      .cells = {},
      .rounds = options.rounds > 0 ? options.rounds : 3,
      .limit_seconds = options.full ? kFullLimit : kQuickLimit,
      .values = [data = data_parallel_set(options)](
                    const StudyCell& cell,
                    const std::filesystem::path& run) { return values_of(data, cell, run); },
      .tell = tell};
  for (const GridPoint& point : data_parallel_grid(options.full)) {
    study.cells.push_back(cell_of(point, options));
  }
  return study;
}

void prepare_data_parallel(const StudyOptions& options, const std::filesystem::path&) {
  training_images(data_parallel_set(options));  // says what is missing
}

}  // namespace lockstep::bench
