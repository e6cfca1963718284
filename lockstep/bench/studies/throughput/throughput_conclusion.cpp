#include "lockstep/bench/studies/throughput/throughput_conclusion.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <vector>

#include "lockstep/bench/studies/conclusion_text.h"
#include "lockstep/bench/studies/estimate_text.h"
#include "lockstep/bench/studies/sureness.h"
#include "lockstep/bench/studies/throughput/throughput_grid.h"
#include "lockstep/bench/studies/throughput/throughput_ratios.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

constexpr const char* kPublished =
    "Published, dp on four V100s: 0.997 with the same batch, 2.70 with the larger one, and 1.24 "
    "more in float16: there the larger batch paid, not the places alone.";

using Change = ThroughputRatio::Change;
using Ratios = std::vector<ThroughputRatio>;

// `1.71 times as fast (1.62 to 1.80, surely faster)`.
std::string times_text(const Estimate& ratio) {
  const std::string times = concat(ratio_text(ratio.median), " times as fast");
  if (ratio.count < 2) return times;
  return concat(
      times, " (", ratio_interval(ratio), ", ", told_from_one(ratio, "faster", "slower"), ")");
}

std::string batch_text(const ThroughputRatio& ratio) {
  if (ratio.change == Change::kPlaces) return concat("with the same batch of ", ratio.cell->batch);
  return concat("with ", kBatchFactor, " times that, ", ratio.cell->batch, ",");
}

Ratios fair_ones(const Ratios& ratios) {
  Ratios fair;
  for (const ThroughputRatio& ratio : ratios) {
    if (ratio.is_fair()) fair.push_back(ratio);
  }
  return fair;
}

std::string of_way(const Ratios& fair, const std::string& way) {
  std::string parts;
  int places = 0;
  for (const ThroughputRatio& ratio : fair) {
    if (ratio.cell->way != way || ratio.change == Change::kPrecision) continue;
    places = ratio.cell->places;
    parts += concat(
        parts.empty() ? "" : "; ", batch_text(ratio), " it is ", times_text(*ratio.measured));
  }
  if (parts.empty())
    return concat(way, ": no cell has a number, beside one place's, and cores of its own.");
  return concat(
      way, " on ", places, " places against one place, in seconds a sample: ", parts, ".");
}

Ratios half_ones(const Ratios& fair) {
  Ratios halves;
  std::copy_if(fair.begin(), fair.end(), std::back_inserter(halves), [](const auto& ratio) {
    return ratio.change == Change::kPrecision;
  });
  return halves;
}

std::string half_verdict(const Ratios& halves) {
  if (halves.empty()) return "";
  const auto all = [&](bool (*side)(const std::optional<Estimate>&)) {
    return std::all_of(
        halves.begin(), halves.end(), [&](const auto& ratio) { return side(ratio.measured); });
  };
  if (all(below_one)) return "Half precision does not pay here.";
  if (all(above_one)) return "Half precision pays here.";
  return "Whether half precision pays is not told.";
}

std::string half_text(const Ratios& halves) {
  std::string parts;
  for (const ThroughputRatio& ratio : halves) {
    const ThroughputCell& cell = *ratio.cell;
    const bool small = cell.image_size != kStudyImageSize;
    parts += concat(
        parts.empty() ? "" : ", ", cell.way, " in ", cell.precision,
        small ? concat(" on images of ", cell.image_size, " x ", cell.image_size) : "", " ",
        times_text(*ratio.measured));
  }
  if (parts.empty()) return "Half precision has no number.";
  return concat("Half precision against float32: ", parts, ".");
}

std::string choice_of_way(const std::vector<ThroughputCell>& cells) {
  std::vector<Estimate> all;
  int above = 0, below = 0;
  for (const ThroughputCell& cell : cells) {
    const ThroughputCell* ddp = other_way(cells, cell, "ddp");
    if (cell.way != "dp" || ddp == nullptr || !cell.is_fair() || !ddp->is_fair()) continue;
    const auto ratio = dp_over_ddp(cells, cell);
    if (!ratio) continue;
    all.push_back(*ratio);
    above += above_one(ratio) ? 1 : 0;
    below += below_one(ratio) ? 1 : 0;
  }
  if (all.empty()) return "";
  const std::string took =
      concat("A sample takes with dp ", range_text(all), " times as long as with ddp");
  if (above > 0 && below == 0) return took + ": take ddp.";
  if (below > 0 && above == 0) return took + ": take dp.";
  return took + "; neither is told to be the quicker.";
}

std::string quickest_text(const std::vector<ThroughputCell>& cells) {
  const ThroughputCell* best = nullptr;
  double least = 0;
  for (const ThroughputCell& cell : cells) {
    const auto seconds = cell.result.estimate(kSecondsASample);
    if (!seconds || !cell.is_fair() || cell.image_size != kStudyImageSize) continue;
    if (best != nullptr && seconds->median >= least) continue;
    best = &cell;
    least = seconds->median;
  }
  if (best == nullptr) return "";
  return concat(
      "The least a sample cost: ", seconds_text(1000 * least), " ms, by ",
      best->way == "serial" ? "one place" : best->way, " with a batch of ", best->batch,
      best->is_half() ? concat(" in ", best->precision) : "", ".");
}

std::string how_sure(const Ratios& fair) {
  std::vector<Estimate> ratios;
  for (const ThroughputRatio& ratio : fair) ratios.push_back(*ratio.measured);
  return about_sureness(ratios);
}

// What was smaller than the study's.
std::string about_cuts(const std::vector<ThroughputCell>& cells) {
  const ThroughputCell& one = cells.front();
  if (one.steps == 5000 && one.batch == 128) return "";
  return concat(
      "Smaller than the study's: batches of ", one.batch, " and ", kBatchFactor * one.batch,
      " instead of 128 and 512, ", one.steps, " steps instead of 5000.");
}

}  // namespace

page::Conclusion throughput_conclusion(const std::vector<ThroughputCell>& cells) {
  if (cells.empty()) return {.answer = "The study has no cells."};
  const Ratios fair = fair_ones(throughput_ratios(cells));
  const Ratios halves = half_ones(fair);
  return {
      .answer = in_one({of_way(fair, "dp"), half_verdict(halves), choice_of_way(cells)}),
      .remarks = said(
          {of_way(fair, "ddp"), half_text(halves), quickest_text(cells), how_sure(fair),
           about_places(cells), about_missing(count_missing(cells), cells.size()),
           about_cuts(cells), kPublished})};
}

}  // namespace lockstep::bench
