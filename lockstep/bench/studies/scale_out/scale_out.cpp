#include "lockstep/bench/studies/scale_out/scale_out.h"

#include "lockstep/bench/page/section.h"
#include "lockstep/bench/studies/sample_table.h"
#include "lockstep/bench/studies/scale_out/node_cells.h"
#include "lockstep/bench/studies/scale_out/node_conclusion.h"
#include "lockstep/bench/studies/scale_out/node_figures.h"
#include "lockstep/bench/studies/scale_out/node_grid.h"
#include "lockstep/bench/studies/scale_out/node_tables.h"
#include "lockstep/bench/studies/scale_out/node_values.h"
#include "lockstep/bench/studies/scale_out/trainer_plan.h"
#include "lockstep/core/error.h"
#include "lockstep/data/synthetic/synthetic_set.h"

namespace lockstep::bench {
namespace scale_out {
namespace {

namespace fs = std::filesystem;

page::Section tell(const Study& study, std::span<const Sample> samples) {
  const auto cells = node_cells(study, samples);
  std::vector<CellResult> results;
  for (const NodeCell& cell : cells) results.push_back(cell.result);
  return {
      .title = study.title,
      .question = study.question,
      .conclusion = node_conclusion(cells),
      .tables =
          {study_table(cells), efficiency_table(cells), survival_table(cells),
           sample_table(
               study, results,
               {{"steps", "steps"},
                {"step_seconds", "step [s]"},
                {kBestValLoss, "best val loss"},
                {"test_accuracy", "top-1"}})},
      .figures = node_figures(cells)};
}

// `images` have a part to test on, but are to have none to validate on: that is held out.
void draw(const fs::path& folder, const TrainerPlan& plan) {
  const bool has_classes = plan.set == "images";
  if (!fs::exists(folder)) {
    data::SyntheticOptions drawn{.train = plan.train_images, .test = plan.test_images};
    if (has_classes) drawn.classes = kDrawnClasses;
    fs::create_directories(folder.parent_path());
    data::write_synthetic_set(plan.set, folder, drawn);
  }
  if (has_classes && !fs::exists(folder / "test")) fs::rename(folder / "val", folder / "test");
}

void check_named(const std::string& data) {
  const auto colon = data.find(':');
  check(
      colon != std::string::npos,
      "bench: --data: name the folder that holds the set, as images:DIR, and not only ", data);
  const std::string folder = data.substr(colon + 1);
  if (!fs::is_directory(folder)) throw DataError(concat("bench: --data: no such folder: ", folder));
}

}  // namespace
}  // namespace scale_out

Study scale_out_study(const StudyOptions& options) {
  const scale_out::TrainerPlan& plan = scale_out::trainer_plan(options.full);
  return {
      .name = "scale-out",
      .title = "Scale out: the same time of training on more nodes",
      .question =
          "With a fixed time to train, how much further do 2, 4, 8 nodes come than one, and does a "
          "run survive the death of a worker?",
      .cells = scale_out::node_grid(options),
      .rounds = options.rounds > 0 ? options.rounds : plan.rounds,
      .limit_seconds = plan.limit_seconds,
      .values = scale_out::node_values,
      .tell = scale_out::tell};
}

void prepare_scale_out(const StudyOptions& options, const std::filesystem::path& output) {
  if (!options.pretrained.empty() && !std::filesystem::is_regular_file(options.pretrained)) {
    throw DataError(concat("bench: --pretrained: no such file: ", options.pretrained));
  }
  const std::string images = options.data_of({"images"}, "");
  check(
      options.full || images.empty(),
      "bench: --data: the quick grid of scale-out takes mnist; add --full for ", images);
  const std::string data = scale_out::node_data(options);
  if (data.find(kBenchFolder) == std::string::npos) return scale_out::check_named(data);
  const scale_out::TrainerPlan& plan = scale_out::trainer_plan(options.full);
  scale_out::draw(output / "data" / plan.set, plan);
}

}  // namespace lockstep::bench
