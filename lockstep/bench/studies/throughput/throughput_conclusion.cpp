#include "lockstep/bench/studies/throughput/throughput_conclusion.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "lockstep/bench/studies/estimate_text.h"
#include "lockstep/bench/studies/throughput/throughput_grid.h"
#include "lockstep/bench/studies/throughput/throughput_ratios.h"
#include "lockstep/bench/studies/throughput/throughput_tables.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using Change = ThroughputRatio::Change;
using Ratios = std::vector<ThroughputRatio>;

std::string range_of(double low, double high, std::string (*text)(double)) {
  const std::string first = text(low), last = text(high);
  return first == last ? first : first + " to " + last;
}

// `1.71 times as fast (1.62 to 1.80, surely faster)`.
std::string times_text(const Estimate& ratio) {
  const std::string times = concat(ratio_text(ratio.median), " times as fast");
  if (ratio.count < 2) return times;
  return concat(times, " (", ratio_interval(ratio), ", ", verdict(ratio), ")");
}

std::string batch_text(const ThroughputRatio& ratio) {
  if (ratio.change == Change::kPlaces) return concat("with the same batch of ", ratio.cell->batch);
  return concat("with ", kBatchFactor, " times that, ", ratio.cell->batch);
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
    return concat(way, ": no cell has a number, beside one place's, and cores of its own. ");
  return concat(
      way, " on ", places, " places against one place, in seconds a sample: ", parts, ". ");
}

std::string half_text(const Ratios& fair) {
  std::string parts;
  std::set<std::string> verdicts;
  for (const ThroughputRatio& ratio : fair) {
    if (ratio.change != Change::kPrecision) continue;
    const ThroughputCell& cell = *ratio.cell;
    const bool small = cell.image_size != kStudyImageSize;
    verdicts.insert(verdict(ratio.measured));
    parts += concat(
        parts.empty() ? "" : ", ",
        cell.way,
        " in ",
        cell.precision,
        small ? concat(" on images of ", cell.image_size, " x ", cell.image_size) : "",
        " ",
        times_text(*ratio.measured));
  }
  if (parts.empty()) return "Half precision has no number. ";
  const std::string text = concat("Half precision against float32: ", parts);
  if (verdicts == std::set<std::string>{"surely slower"}) return text + ": it does not pay here. ";
  if (verdicts == std::set<std::string>{"surely faster"}) return text + ": it pays here. ";
  return text + ". ";
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
  const auto [least, most] =
      std::minmax_element(all.begin(), all.end(), [](const Estimate& a, const Estimate& b) {
        return a.median < b.median;
      });
  const std::string took = concat(
      "A sample takes with dp ",
      range_of(least->median, most->median, ratio_text),
      " times as long as with ddp");
  if (above > 0 && below == 0) return took + ": take ddp. ";
  if (below > 0 && above == 0) return took + ": take dp. ";
  return took + ": neither is surely the quicker. ";
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
      "The least a sample cost: ",
      seconds_text(1000 * least),
      " ms, by ",
      best->way == "serial" ? "one place" : best->way,
      " with a batch of ",
      best->batch,
      best->is_half() ? concat(" in ", best->precision) : "",
      ". ");
}

std::string sureness_of(const Ratios& fair) {
  if (fair.empty()) return "";
  std::vector<Estimate> intervals;
  for (const ThroughputRatio& ratio : fair) {
    if (ratio.measured->count > 1) intervals.push_back(*ratio.measured);
  }
  if (intervals.empty())
    return "One round was measured: there is no interval, and nothing is sure. ";
  const auto [few, many] = std::minmax_element(
      intervals.begin(), intervals.end(), [](const Estimate& a, const Estimate& b) {
        return a.count < b.count;
      });
  const Estimate &least = *few, &most = *many;
  const std::string rounds =
      least.count == most.count ? concat(least.count) : concat(least.count, " to ", most.count);
  return concat(
      "Sure means that the whole interval over ",
      rounds,
      " rounds lies on one side of 1; it holds the true ratio with a probability of ",
      range_of(least.confidence, most.confidence, percent_text),
      ". ");
}

std::string about_cells(const std::vector<ThroughputCell>& cells) {
  const auto cores = cells.front().result.cell.cores / cells.front().places;
  std::string text = concat("A place is ", cores, cores == 1 ? " core" : " cores", " here. ");
  const auto count = [&](auto&& holds) { return std::count_if(cells.begin(), cells.end(), holds); };
  const auto over = count([](const ThroughputCell& cell) { return cell.result.oversubscribed; });
  if (over > 0) {
    text += concat(
        over,
        " cells have more places than there are cores: they are marked oversubscribed, are no fair "
        "test and no part of this. ");
  }
  const auto missing =
      count([](const ThroughputCell& cell) { return !cell.result.reason.empty(); });
  if (missing > 0) {
    text += concat(missing, " of ", cells.size(), " cells have no number: the tables say why. ");
  }
  return text;
}

// What was smaller than the study's.
std::string about_cuts(const std::vector<ThroughputCell>& cells) {
  const ThroughputCell& one = cells.front();
  if (one.steps == 5000 && one.batch == 128) return "";
  return concat(
      "Smaller than the study's: batches of ",
      one.batch,
      " and ",
      kBatchFactor * one.batch,
      " instead of 128 and 512, ",
      one.steps,
      " steps instead of 5000. ");
}

}  // namespace

std::string throughput_conclusion(const std::vector<ThroughputCell>& cells) {
  if (cells.empty()) return "The study has no cells.";
  const Ratios fair = fair_ones(throughput_ratios(cells));
  return concat(
      of_way(fair, "dp"),
      of_way(fair, "ddp"),
      half_text(fair),
      choice_of_way(cells),
      quickest_text(cells),
      sureness_of(fair),
      about_cells(cells),
      about_cuts(cells),
      "Published, dp on four V100s: 0.997 with the same batch, 2.70 with the larger one, and 1.24 "
      "more in float16: there the larger batch paid, not the places alone.");
}

}  // namespace lockstep::bench
