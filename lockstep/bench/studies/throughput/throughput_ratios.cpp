#include "lockstep/bench/studies/throughput/throughput_ratios.h"

#include <algorithm>

#include "lockstep/bench/studies/throughput/throughput_grid.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using Change = ThroughputRatio::Change;

constexpr double kPublishedPlaces = 0.997;
constexpr double kPublishedPlacesAndBatch = 2.70;
constexpr double kPublishedHalf = 1.24;

double published(Change change) {
  if (change == Change::kPlaces) return kPublishedPlaces;
  return change == Change::kPlacesAndBatch ? kPublishedPlacesAndBatch : kPublishedHalf;
}

const ThroughputCell* in_float32(
    const std::vector<ThroughputCell>& cells, const ThroughputCell& cell) {
  ThroughputCell wanted = cell;
  wanted.precision = "32";
  return other_way(cells, wanted, cell.way);
}

// The other side of a cell's ratio; nullptr: it is no ratio's denominator.
const ThroughputCell* base_of(
    const std::vector<ThroughputCell>& cells, const ThroughputCell& cell) {
  if (cell.way == "serial") return nullptr;
  return cell.is_half() ? in_float32(cells, cell) : one_place(cells, cell.image_size);
}

Change change_of(const ThroughputCell& base, const ThroughputCell& cell) {
  if (cell.is_half()) return Change::kPrecision;
  return base.batch == cell.batch ? Change::kPlaces : Change::kPlacesAndBatch;
}

ThroughputRatio ratio_between(const ThroughputCell& base, const ThroughputCell& cell) {
  ThroughputRatio ratio{
      .change = change_of(base, cell),
      .base = &base,
      .cell = &cell,
      .measured = ratio_of(base.result, cell.result, kSecondsASample),
      .predicted = {},
      .published = {}};
  if (!cell.is_half())
    ratio.predicted = static_cast<double>(cell.result.cell.cores) / base.result.cell.cores;
  if (cell.way == "dp") ratio.published = published(ratio.change);
  return ratio;
}

}  // namespace

std::string ThroughputRatio::name() const {
  std::string text =
      cell->is_half() ? concat(cell->way, " in float32 / ", cell->precision)
                      : concat("one place / ", cell->way, ", ", kBatchFactor, " times the batch");
  if (change == Change::kPlaces) text = concat("one place / ", cell->way, ", same batch");
  const bool other_size = cell->image_size != kStudyImageSize;
  return other_size ? concat(text, ", ", cell->image_size, " px") : text;
}

std::vector<ThroughputRatio> throughput_ratios(const std::vector<ThroughputCell>& cells) {
  std::vector<ThroughputRatio> ratios;
  for (const ThroughputCell& cell : cells) {
    if (const ThroughputCell* base = base_of(cells, cell)) {
      ratios.push_back(ratio_between(*base, cell));
    }
  }
  std::stable_sort(ratios.begin(), ratios.end(), [](const auto& one, const auto& other) {
    return (one.cell->way == "dp") > (other.cell->way == "dp");
  });
  return ratios;
}

std::optional<Estimate> dp_over_ddp(
    const std::vector<ThroughputCell>& cells, const ThroughputCell& cell) {
  const ThroughputCell* dp = other_way(cells, cell, "dp");
  const ThroughputCell* ddp = other_way(cells, cell, "ddp");
  if (dp == nullptr || ddp == nullptr) return std::nullopt;
  return ratio_of(dp->result, ddp->result, kSecondsASample);
}

}  // namespace lockstep::bench
