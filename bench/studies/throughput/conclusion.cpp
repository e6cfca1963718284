#include <algorithm>

#include "bench/statistics/estimate_text.h"
#include "bench/studies/throughput/study.h"
#include "bench/study/figure_of.h"
#include "bench/study/verdict.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::bench::throughput {
namespace {

using Ratios = std::vector<Ratio>;

constexpr const char* kPublished =
    "Published, dp on four V100s: 0.997 with the same batch, 2.70 with the larger one, and 1.24 "
    "more in float16: there the larger batch paid, not the places alone.";

std::string figure_note(const Cells& cells, const std::string& more) {
  return concat(medians_note(most_rounds(cells, kSecondsASample)), " ", more);
}

std::string mark(const Cell& cell) { return cell.result.oversubscribed ? " (oversubscribed)" : ""; }

std::string cell_name(const Cell& cell) {
  const std::string way = cell.way == "serial" ? "one place" : concat(cell.way, " x ", cell.places);
  return concat(
      way, ", batch ", cell.batch, cell.is_half() ? ", " + cell.precision : "", mark(cell));
}

std::string ratio_category(const Ratio& ratio) {
  const Cell& cell = *ratio.cell;
  if (cell.is_half()) {
    const std::string size = cell.has_study_size() ? "" : concat(", ", cell.image_size, " px");
    return concat("float32 / ", cell.precision, size);
  }
  const bool same = ratio.change == Ratio::Change::kPlaces;
  return concat("one place / places, ", same ? "same batch" : "large batch", mark(cell));
}

// `1.71 times as fast (1.62 to 1.80, surely faster)`.
std::string times_text(const Estimate& ratio) {
  const std::string times = concat(ratio_text(ratio.median), " times as fast");
  if (ratio.count < 2) return times;
  return concat(
      times, " (", interval_text(ratio), ", ", verdict_on(ratio, "faster", "slower"), ")");
}

std::string batch_text(const Ratio& ratio) {
  if (ratio.change == Ratio::Change::kPlaces)
    return concat("with the same batch of ", ratio.cell->batch);
  return concat("with ", kBatchFactor, " times that, ", ratio.cell->batch, ",");
}

Ratios fair_ratios(const Cells& cells) {
  Ratios fair = ratios(cells);
  std::erase_if(fair, [](const Ratio& ratio) { return !ratio.is_fair(); });
  return fair;
}

std::string about_way(const Ratios& fair, const std::string& way) {
  std::vector<std::string> parts;
  int places = 0;
  for (const Ratio& ratio : fair) {
    if (ratio.cell->way != way || ratio.cell->is_half()) continue;
    places = ratio.cell->places;
    parts.push_back(concat(batch_text(ratio), " it is ", times_text(*ratio.measured)));
  }
  if (parts.empty())
    return way + ": no cell has a number, beside one place's, and cores of its own.";
  return concat(way, " on ", places,
      " places against one place, in seconds a sample: ", joined(parts, "; "), ".");
}

Verdict verdict_of(const Ratios& ratios) {
  Verdict verdict;
  for (const Ratio& ratio : ratios) verdict.add(ratio.measured);
  return verdict;
}

std::string precisions_where(
    const Ratios& halves, bool (*holds)(const std::optional<Estimate>& ratio)) {
  std::vector<std::string> names;
  for (const Ratio& ratio : halves)
    if (holds(ratio.measured)) names.push_back(ratio.cell->precision);
  return joined(names);
}

std::string half_verdict(const Ratios& halves) {
  const Verdict verdict = verdict_of(halves);
  const auto all = static_cast<int>(halves.size());
  if (all == 0) return "";
  if (verdict.below == all) return "Half precision does not pay here.";
  if (verdict.above == all) return "Half precision pays here.";
  if (verdict.is_divided() && verdict.above + verdict.below == all)
    return concat("Half precision pays in ", precisions_where(halves, above_one), ", not in ",
        precisions_where(halves, below_one), ".");
  return "Whether half precision pays is not clear.";
}

std::string half_text(const Ratios& halves) {
  std::vector<std::string> parts;
  for (const Ratio& ratio : halves) {
    const Cell& cell = *ratio.cell;
    const std::string size =
        cell.has_study_size() ? ""
                              : concat(" on images of ", cell.image_size, " x ", cell.image_size);
    parts.push_back(
        concat(cell.way, " in ", cell.precision, size, " ", times_text(*ratio.measured)));
  }
  if (parts.empty()) return "Half precision has no number.";
  return concat("Half precision against float32: ", joined(parts), ".");
}

std::string choice_of_way(const Cells& cells) {
  const Verdict verdict = verdict_of_fair(cells, [&](const Cell& cell) {
    const Cell* ddp = other_way(cells, cell, "ddp");
    const bool both = cell.way == "dp" && ddp != nullptr && ddp->is_fair();
    return both ? dp_over_ddp(cells, cell) : std::nullopt;
  });
  if (verdict.ratios.empty()) return "";
  const std::string took =
      concat("A sample takes with dp ", range_text(verdict.ratios), " times as long as with ddp");
  if (verdict.is_above()) return took + ": take ddp.";
  if (verdict.is_below()) return took + ": take dp.";
  return took +
         (verdict.is_divided() ? ": it depends on the batch." : "; neither is clearly faster.");
}

std::string cheapest_text(const Cells& cells) {
  const Cell* best = nullptr;
  double least = 0;
  for (const Cell& cell : cells) {
    const auto seconds = cell.median(kSecondsASample);
    if (!seconds || !cell.is_fair() || !cell.has_study_size()) continue;
    if (best != nullptr && *seconds >= least) continue;
    best = &cell;
    least = *seconds;
  }
  if (best == nullptr) return "";
  return concat("The least a sample cost: ", milliseconds_text(least), " ms, by ",
      best->way == "serial" ? "one place" : best->way, " with a batch of ", best->batch,
      best->is_half() ? " in " + best->precision : "", ".");
}

// What was smaller than the study's.
std::string about_cuts(const Cells& cells) {
  const Cell& one = cells.front();
  if (one.steps == 5000 && one.batch == 128) return "";
  return concat("Smaller than the study's: batches of ", one.batch, " and ",
      kBatchFactor * one.batch, " instead of 128 and 512, ", one.steps, " steps instead of 5000.");
}

}  // namespace

std::vector<plot::Figure> figures(const Cells& cells) {
  // Images of another size cost another time: they are in the tables and in the ratios.
  const auto cost =
      BarsOf<Cell>("throughput-ms-a-sample", "ResNet50: what a sample of 224 x 224 costs",
          "way, batch of all places", "a sample [ms]", cell_name)
          .bars(
              "here", [](const Cell& cell) { return cell.estimate(kSecondsASample); }, 1000)
          .bars(
              "predicted", [&](const Cell& cell) { return predicted_seconds(cells, cell); }, 1000)
          .of(select(cells,
                  [&](const Cell& cell) { return one_place(cells, cell.image_size) != nullptr; }),
              figure_note(cells,
                  "Predicted: one place's time shared by the cores of all, linear scaling."));
  const auto of_way = [](const std::string& way) {
    return [way](const Ratio& ratio) {
      return ratio.cell->way == way ? ratio.measured : std::nullopt;
    };
  };
  auto relative =
      BarsOf<Ratio>("throughput-ratios",
          "How many times as fast a sample is: here, predicted, published",
          "seconds a sample of the first / of the second", "times as fast", ratio_category)
          .bars("dp here", of_way("dp"))
          .bars("ddp here", of_way("ddp"))
          .bars("predicted",
              [](const Ratio& ratio) {
                return ratio.cell->way == "dp" ? ratio.predicted : std::nullopt;
              })
          .bars("published, dp", &Ratio::published)
          .of(ratios(cells),
              figure_note(cells,
                  "Published: four V100 GPUs, batches of 128 and 512, half precision as float16."));
  std::erase_if(relative.series, [](const auto& series) { return series.points.empty(); });
  return {cost, relative};
}

page::Conclusion conclusion(const Cells& cells) {
  if (cells.empty()) return {.answer = "The study has no cells."};
  const Ratios fair = fair_ratios(cells);
  Ratios halves = fair;
  std::erase_if(halves, [](const Ratio& ratio) { return !ratio.cell->is_half(); });
  return {.answer = in_one({about_way(fair, "dp"), half_verdict(halves), choice_of_way(cells)}),
      .remarks = said({about_way(fair, "ddp"), half_text(halves), cheapest_text(cells),
          verdict_of(fair).explained(), about_places(cells), about_missing(results_of(cells)),
          about_cuts(cells), kPublished})};
}

}  // namespace lockstep::bench::throughput
