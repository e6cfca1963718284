#include "lockstep/bench/studies/pipeline/pipeline_conclusion.h"

#include <algorithm>
#include <optional>

#include "lockstep/bench/studies/conclusion_text.h"
#include "lockstep/bench/studies/estimate_text.h"
#include "lockstep/bench/studies/pipeline/run_times.h"
#include "lockstep/bench/studies/sureness.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using Cells = std::vector<PipelineCell>;

std::vector<const PipelineCell*> fair_pipelines(const Cells& cells) {
  std::vector<const PipelineCell*> all;
  for (const PipelineCell& cell : cells) {
    const bool is_piped = cell.point.is_cut() && cell.point.chunks() > 1;
    if (is_piped && cell.is_fair() && over_single(cells, cell)) all.push_back(&cell);
  }
  return all;
}

const PipelineCell* quickest(const std::vector<const PipelineCell*>& cells) {
  const auto seconds = [](const PipelineCell* cell) {
    return cell->result.estimate(kRunSeconds)->median;
  };
  const auto found = std::min_element(
      cells.begin(), cells.end(),
      [&](const auto* a, const auto* b) { return seconds(a) < seconds(b); });
  return found == cells.end() ? nullptr : *found;
}

std::string about_model_parallel(const Cells& cells) {
  const PipelineCell* mp = find_way(cells, kModelParallel);
  const PipelineCell* single = find_way(cells, kSinglePlace);
  const bool both = mp != nullptr && single != nullptr && mp->is_fair() && single->is_fair();
  const auto ratio = both ? ratio_of(mp->result, single->result, kRunSeconds) : std::nullopt;
  if (!ratio) return "Model parallel cannot be compared with a single place.";
  return concat(
      "Model parallel, in which one place always waits, takes ", with_interval(*ratio),
      " times as long as a single place: ", told_from_one(*ratio, "longer", "shorter"), ".");
}

std::vector<const PipelineCell*> fair_ones_of_the_study(const Cells& cells) {
  auto piped = fair_pipelines(cells);
  std::erase_if(piped, [](const auto* cell) { return cell->point.way != kStudysSchedule; });
  return piped;
}

// What small micro-batches cost is no fault of the pipeline.
std::string about_micro_batches(const Cells& cells) {
  const PipelineCell* best = quickest(fair_ones_of_the_study(cells));
  const auto faster = best == nullptr ? std::nullopt : over_micro_batches(cells, *best);
  if (!faster) return "";
  return concat(
      "The best of the study's pipelines is ", with_interval(*faster),
      " times as fast as a single place that has the same micro-batches of ", best->point.split,
      ": ", percent_text(faster->median / bound_of(*best).speed_up), " of its bound.");
}

std::string about_splits(const Cells& cells) {
  const auto piped = fair_ones_of_the_study(cells);
  const PipelineCell* best = quickest(piped);
  if (best == nullptr) return "The study's pipeline cannot be compared with a single place.";
  const auto faster = over_single(cells, *best);
  const double bound = bound_of(*best).speed_up;
  return concat(
      "Pipelined as in the study (", kStudysSchedule, "), the best of ", piped.size(),
      piped.size() == 1 ? " split size is " : " split sizes is ", best->point.split, ", ",
      best->point.chunks(), " micro-batches: ", with_interval(*faster),
      " times as fast as a single place, ", told_from_one(*faster, "faster", "slower"),
      "; that is ", percent_text(faster->median / bound), " of the ", ratio_text(bound),
      " that its bubble allows.");
}

std::string about_memory(const Cells& cells, const PipelineCell& best, const PipelineCell& gpipe) {
  const auto ratio = ratio_of(best.result, gpipe.result, kPeakMemory);
  const PipelineCell* single = find_way(cells, kSinglePlace);
  const auto alone =
      single == nullptr ? std::nullopt : ratio_of(best.result, single->result, kPeakMemory);
  if (!ratio || !alone) return "";
  return concat(
      best.name(), " takes ", with_interval(*ratio),
      " times the memory of gpipe, both places together ", with_interval(*alone),
      " times that of a single place.");
}

std::string about_schedules(const Cells& cells) {
  const int split = standard_split(cells.front().point.batch);
  auto piped = fair_pipelines(cells);
  std::erase_if(piped, [&](const auto* cell) { return cell->point.split != split; });
  const PipelineCell* gpipe = find_way(cells, kStudysSchedule, split);
  const PipelineCell* best = quickest(piped);
  if (best == nullptr || piped.size() < 2) return "";
  const std::string start = concat("Of ", piped.size(), " schedules at split size ", split, " ");
  if (best == gpipe) return start + "gpipe is the quickest.";
  const auto ratio =
      gpipe == nullptr ? std::nullopt : ratio_of(gpipe->result, best->result, kRunSeconds);
  const std::string name = concat(start, best->name(), " is the quickest");
  if (!ratio) return name + ".";
  return concat(
      name, ", ", with_interval(*ratio),
      " times as fast as gpipe: ", told_from_one(*ratio, "faster", "slower"), ". ",
      about_memory(cells, *best, *gpipe));
}

std::string about_cores_of_both(const Cells& cells) {
  const PipelineCell* both = find_way(cells, kCoresOfBoth);
  const PipelineCell* best = quickest(fair_pipelines(cells));
  if (both == nullptr || best == nullptr) return "";
  const auto ratio = ratio_of(best->result, both->result, kRunSeconds);
  if (!ratio) return "";
  const char* advice = above_one(ratio)   ? ": cut a net for memory, not for time."
                       : below_one(ratio) ? ": the cut pays."
                                          : ".";
  return concat(
      "The quickest pipeline of all (", best->name(), ", split size ", best->point.split,
      ") takes ", with_interval(*ratio), " times as long as one place with the cores of both, ",
      told_from_one(*ratio, "longer", "shorter"), advice);
}

std::string how_sure(const Cells& cells) {
  const PipelineCell* single = find_way(cells, kSinglePlace);
  const auto seconds = single == nullptr ? std::nullopt : single->result.estimate(kRunSeconds);
  if (!seconds) return "";
  const std::string chance = "Of many cells some lie on the wrong side by chance.";
  return in_one({about_sureness(std::span(&*seconds, 1)), seconds->count < 2 ? "" : chance});
}

std::string about_places(const Cells& cells) {
  for (const PipelineCell& cell : cells) {
    if (cell.result.oversubscribed) {
      return about_oversubscribed("Two places");
    }
  }
  const PipelineCell* single = find_way(cells, kSinglePlace);
  const int cores = single == nullptr ? 1 : single->cores;
  return concat(
      "A place is ", cores, cores == 1 ? " core" : " cores",
      " here; places of one processor share its caches, its memory and its clock, which two GPUs "
      "do not.");
}

std::string about_batch(const Cells& cells) {
  const int batch = cells.front().point.batch;
  if (batch == kPipelineStudyBatch) return "";
  return concat(
      "The batch is ", batch, ", the study's ", kPipelineStudyBatch,
      ": its micro-batches are larger for as many chunks.");
}

}  // namespace

page::Conclusion pipeline_conclusion(const std::vector<PipelineCell>& cells) {
  if (cells.empty()) return {.answer = "The study has no cells."};
  return {
      .answer = in_one({about_splits(cells), about_cores_of_both(cells)}),
      .remarks = said(
          {about_micro_batches(cells), about_model_parallel(cells), about_schedules(cells),
           how_sure(cells), about_places(cells), about_batch(cells),
           about_missing(count_missing(cells), cells.size())})};
}

}  // namespace lockstep::bench
