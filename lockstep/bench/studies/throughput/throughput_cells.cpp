#include "lockstep/bench/studies/throughput/throughput_cells.h"

#include <algorithm>
#include <functional>

namespace lockstep::bench {
namespace {

// What the study's notebook printed, rounded to a microsecond.
constexpr double kPublishedSerial = 0.003333;
constexpr double kPublishedSameBatch = 0.003343;
constexpr double kPublishedLargeBatch = 0.001232;
constexpr double kPublishedHalf = 0.000990;

const ThroughputCell* find(
    const std::vector<ThroughputCell>& cells,
    const std::function<bool(const ThroughputCell&)>& fits) {
  const auto found = std::find_if(cells.begin(), cells.end(), fits);
  return found == cells.end() ? nullptr : &*found;
}

}  // namespace

std::vector<ThroughputCell> throughput_cells(const Study& study, std::span<const Sample> samples) {
  std::vector<ThroughputCell> cells;
  for (CellResult& result : cell_results(study, samples)) {
    cells.push_back(
        {.way = result.setting("way"),
         .places = result.cell.places,
         .batch = std::stoi(result.setting("batch")),
         .precision = result.setting("precision"),
         .image_size = std::stoi(result.setting("image_size")),
         .steps = std::stoi(result.setting("steps")),
         .result = {}});
    cells.back().result = std::move(result);
  }
  return cells;
}

const ThroughputCell* one_place(const std::vector<ThroughputCell>& cells, int image_size) {
  return find(cells, [&](const ThroughputCell& each) {
    return each.way == "serial" && each.image_size == image_size;
  });
}

const ThroughputCell* other_way(
    const std::vector<ThroughputCell>& cells, const ThroughputCell& cell, const std::string& way) {
  return find(cells, [&](const ThroughputCell& each) {
    return each.way == way && each.places == cell.places && each.batch == cell.batch &&
           each.precision == cell.precision && each.image_size == cell.image_size;
  });
}

std::optional<double> predicted_seconds(
    const std::vector<ThroughputCell>& cells, const ThroughputCell& cell) {
  const ThroughputCell* one = one_place(cells, cell.image_size);
  if (one == nullptr || cell.is_half() || cell.way == "serial") return std::nullopt;
  const auto seconds = one->result.estimate(kSecondsASample);
  if (!seconds) return std::nullopt;
  return seconds->median * one->result.cell.cores / cell.result.cell.cores;
}

std::optional<double> published_seconds(
    const std::vector<ThroughputCell>& cells, const ThroughputCell& cell) {
  const ThroughputCell* one = one_place(cells, kStudyImageSize);
  const bool known = one != nullptr && cell.image_size == kStudyImageSize && cell.way != "ddp";
  if (!known) return std::nullopt;
  if (cell.way == "serial") return kPublishedSerial;
  if (cell.is_half()) return kPublishedHalf;
  return cell.batch == one->batch ? kPublishedSameBatch : kPublishedLargeBatch;
}

}  // namespace lockstep::bench
