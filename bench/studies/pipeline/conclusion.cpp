#include <algorithm>

#include "bench/statistics/estimate_text.h"
#include "bench/studies/pipeline/study.h"
#include "bench/study/verdict.h"
#include "lockstep/core/error.h"

namespace lockstep::bench::pipeline {
namespace {

using Pointers = std::vector<const Cell*>;

Pointers fair_pipelines(const Cells& cells) {
  return select(cells, [&](const Cell& cell) {
    return cell.is_cut() && cell.chunks() > 1 && cell.is_fair() && over_single(cells, cell);
  });
}

Pointers fair_pipelines_of_the_study(const Cells& cells) {
  auto piped = fair_pipelines(cells);
  std::erase_if(piped, [](const Cell* cell) { return cell->way != kStudysSchedule; });
  return piped;
}

const Cell* fastest(const Pointers& cells) {
  const auto found = std::min_element(cells.begin(), cells.end(),
      [](const Cell* a, const Cell* b) { return a->median(kRunSeconds) < b->median(kRunSeconds); });
  return found == cells.end() ? nullptr : *found;
}

std::string about_model_parallel(const Cells& cells) {
  const Cell* mp = find_way(cells, kModelParallel);
  const Cell* single = find_way(cells, kSinglePlace);
  const bool both = mp != nullptr && single != nullptr && mp->is_fair() && single->is_fair();
  const auto ratio = both ? ratio_of(mp, single, kRunSeconds) : std::nullopt;
  if (!ratio) return "Model parallel cannot be compared with a single place.";
  return concat("Model parallel, in which one place always waits, takes ", with_interval(*ratio),
      " times as long as a single place: ", verdict_on(*ratio, "longer", "shorter"), ".");
}

// What small micro-batches cost is not the fault of the pipeline.
std::string about_micro_batches(const Cells& cells) {
  const Cell* best = fastest(fair_pipelines_of_the_study(cells));
  const auto faster = best == nullptr ? std::nullopt : over_micro_batches(cells, *best);
  if (!faster) return "";
  return concat("The best of the study's pipelines is ", with_interval(*faster),
      " times as fast as a single place that has the same micro-batches of ", best->split, ": ",
      percent_text(faster->median / bound_of(*best).speed_up), " of its bound.");
}

std::string about_splits(const Cells& cells) {
  const auto piped = fair_pipelines_of_the_study(cells);
  const Cell* best = fastest(piped);
  if (best == nullptr) return "The study's pipeline cannot be compared with a single place.";
  const auto faster = over_single(cells, *best);
  const double bound = bound_of(*best).speed_up;
  return concat("Pipelined as in the study (", kStudysSchedule, "), the best of ", piped.size(),
      piped.size() == 1 ? " split size is " : " split sizes is ", best->split, ", ", best->chunks(),
      " micro-batches: ", with_interval(*faster), " times as fast as a single place, ",
      verdict_on(*faster, "faster", "slower"), "; that is ", percent_text(faster->median / bound),
      " of the ", ratio_text(bound), " that its bubble allows.");
}

std::string about_memory(const Cells& cells, const Cell& best, const Cell& gpipe) {
  const auto ratio = ratio_of(&best, &gpipe, kPeakMemory);
  const auto alone = ratio_of(&best, find_way(cells, kSinglePlace), kPeakMemory);
  if (!ratio || !alone) return "";
  return concat(best.name(), " takes ", with_interval(*ratio),
      " times the memory of gpipe, both places together ", with_interval(*alone),
      " times that of a single place.");
}

std::string about_schedules(const Cells& cells) {
  const int split = standard_split(cells.front().batch);
  auto piped = fair_pipelines(cells);
  std::erase_if(piped, [&](const Cell* cell) { return cell->split != split; });
  const Cell* gpipe = find_way(cells, kStudysSchedule, split);
  const Cell* best = fastest(piped);
  if (best == nullptr || piped.size() < 2) return "";
  const std::string name = concat("Of ", piped.size(), " schedules at split size ", split, " ",
      best->name(), " is the fastest");
  const auto ratio = best == gpipe ? std::nullopt : ratio_of(gpipe, best, kRunSeconds);
  if (!ratio) return name + ".";
  return concat(name, ", ", with_interval(*ratio),
      " times as fast as gpipe: ", verdict_on(*ratio, "faster", "slower"), ". ",
      about_memory(cells, *best, *gpipe));
}

std::string about_cores_of_both(const Cells& cells) {
  const Cell* best = fastest(fair_pipelines(cells));
  const auto ratio = ratio_of(best, find_way(cells, kCoresOfBoth), kRunSeconds);
  if (!ratio) return "";
  const char* advice = above_one(ratio)   ? ": cut a net for memory, not for time."
                       : below_one(ratio) ? ": the cut pays."
                                          : ".";
  return concat("The fastest pipeline of all (", best->name(), ", split size ", best->split,
      ") takes ", with_interval(*ratio), " times as long as one place with the cores of both, ",
      verdict_on(*ratio, "longer", "shorter"), advice);
}

std::string how_sure(const Cells& cells) {
  const Cell* single = find_way(cells, kSinglePlace);
  Verdict verdict;
  if (single != nullptr) verdict.add(single->estimate(kRunSeconds));
  const char* chance = "Of many cells some lie on the wrong side by chance.";
  return in_one({verdict.explained(), verdict.has_intervals() ? chance : ""});
}

std::string about_two_places(const Cells& cells) {
  if (any_oversubscribed(cells)) return about_oversubscribed("Two places");
  const Cell* single = find_way(cells, kSinglePlace);
  const int cores = single == nullptr ? 1 : single->result.cell.cores;
  return concat("A place is ", cores, cores == 1 ? " core" : " cores",
      " here; places of one processor share its caches, its memory and its clock, which two GPUs "
      "do not.");
}

std::string about_batch(const Cells& cells) {
  const int batch = cells.front().batch;
  if (batch == kStudyBatch) return "";
  return concat("The batch is ", batch, ", the study's ", kStudyBatch,
      ": its micro-batches are larger for the same number of them.");
}

}  // namespace

page::Conclusion conclusion(const Cells& cells) {
  if (cells.empty()) return {.answer = "The study has no cells."};
  return {.answer = in_one({about_splits(cells), about_cores_of_both(cells)}),
      .remarks = said({about_micro_batches(cells), about_model_parallel(cells),
          about_schedules(cells), how_sure(cells), about_two_places(cells), about_batch(cells),
          about_missing(results_of(cells))})};
}

}  // namespace lockstep::bench::pipeline
