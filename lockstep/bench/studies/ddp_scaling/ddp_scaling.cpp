#include "lockstep/bench/studies/ddp_scaling/ddp_scaling.h"

#include <algorithm>

#include "lockstep/bench/page/section.h"
#include "lockstep/bench/studies/ddp_scaling/scaling_conclusion.h"
#include "lockstep/bench/studies/ddp_scaling/scaling_figures.h"
#include "lockstep/bench/studies/ddp_scaling/scaling_grid.h"
#include "lockstep/bench/studies/ddp_scaling/scaling_tables.h"
#include "lockstep/bench/studies/ddp_scaling/scaling_values.h"
#include "lockstep/bench/studies/sample_table.h"
#include "lockstep/core/error.h"
#include "lockstep/data/synthetic/synthetic_set.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;

constexpr double kQuickLimit = 300;            // seconds; a sample takes about eight
constexpr double kFullLimit = 48.0 * 60 * 60;  // ten epochs at 224 pixels on one slow core

page::Section tell(const Study& study, std::span<const Sample> samples) {
  const auto cells = scaling_cells(study, samples);
  std::vector<CellResult> results;
  for (const ScalingCell& cell : cells) results.push_back(cell.result);
  return {
      .title = study.title,
      .question = study.question,
      .conclusion = scaling_conclusion(cells),
      .tables =
          {run_time_table(cells), scaling_speed_up_table(cells), scaling_epoch_table(cells),
           sample_table(
               study, results,
               {{kRunSeconds, "ten epochs [s]"}, {kLaterEpoch, "later epoch [s]"}})},
      .figures = scaling_figures(cells)};
}

void draw_set(const fs::path& folder, bool full) {
  if (fs::exists(folder) && !fs::is_empty(folder)) return;
  data::SyntheticOptions options;
  if (!full) {
    options.train = kQuickImages;
    options.test = 100;
  }
  data::write_synthetic_set("cifar100", folder, options);
}

}  // namespace

Study ddp_scaling_study(const StudyOptions& options) {
  Study study{
      .name = "ddp-scaling",
      .title = "DDP over places and nodes: ResNet18 on CIFAR-100",
      .question =
          "How much shorter does DistributedDataParallel make a training on two places of one "
          "node, does the launcher matter, and do two nodes pay?",
      .cells = {},
      .rounds = options.rounds > 0 ? options.rounds : (options.full ? 3 : 2),
      .limit_seconds = options.full ? kFullLimit : kQuickLimit,
      .values = [](const StudyCell&, const fs::path& run) { return scaling_values(run); },
      .tell = tell};
  for (const ScalingPoint& point : scaling_grid()) {
    study.cells.push_back(scaling_cell(point, options));
  }
  return study;
}

void prepare_ddp_scaling(const StudyOptions& options, const fs::path& output) {
  const std::string data = scaling_set(options);
  const std::string folder = data.substr(std::min(data.find(':'), data.size() - 1) + 1);
  check(
      data.find(':') != std::string::npos && !folder.empty(),
      "bench: --data cifar100 needs the folder that holds the set, as cifar100:DIR");
  if (options.data_of({"cifar100"}, "").empty()) {
    return draw_set(output / "data" / "cifar100", options.full);
  }
  if (!fs::is_directory(folder)) throw DataError(concat(folder, ": no such folder"));
}

}  // namespace lockstep::bench
