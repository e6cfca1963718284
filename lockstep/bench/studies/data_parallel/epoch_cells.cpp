#include "lockstep/bench/studies/data_parallel/epoch_cells.h"

#include <algorithm>

#include "lockstep/bench/studies/data_parallel/published_epochs.h"

namespace lockstep::bench {

double EpochCell::epoch_share() const {
  const auto share = result.estimate("epoch_share");
  return share ? share->median : 1;
}

std::vector<EpochCell> epoch_cells(const Study& study, std::span<const Sample> samples) {
  std::vector<EpochCell> cells;
  for (CellResult& result : cell_results(study, samples)) {
    cells.push_back(
        {.model = result.setting("model"),
         .repeat = std::stoi(result.setting("repeat")),
         .batch = std::stoi(result.setting("batch")),
         .places = result.cell.places,
         .way = result.setting("way"),
         .result = {}});
    cells.back().result = std::move(result);
  }
  return cells;
}

const EpochCell* sibling(
    const std::vector<EpochCell>& cells, const EpochCell& cell, int places,
    const std::string& way) {
  const auto found = std::find_if(cells.begin(), cells.end(), [&](const EpochCell& each) {
    return each.model == cell.model && each.repeat == cell.repeat && each.batch == cell.batch &&
           each.places == places && each.way == way;
  });
  return found == cells.end() ? nullptr : &*found;
}

std::optional<Estimate> speed_up(const std::vector<EpochCell>& cells, const EpochCell& cell) {
  const EpochCell* one = sibling(cells, cell, 1, "serial");
  if (one == nullptr || cell.places == 1) return std::nullopt;
  return ratio_of(one->result, cell.result, kSecondEpoch);
}

std::optional<Estimate> dp_over_ddp(const std::vector<EpochCell>& cells, const EpochCell& cell) {
  const EpochCell* dp = sibling(cells, cell, cell.places, "dp");
  const EpochCell* ddp = sibling(cells, cell, cell.places, "ddp");
  if (dp == nullptr || ddp == nullptr) return std::nullopt;
  return ratio_of(dp->result, ddp->result, kSecondEpoch);
}

std::optional<double> published_speed_up(const EpochCell& cell) {
  const auto* one = find_published(cell.model, cell.repeat, cell.batch, 1);
  const auto* these = find_published(cell.model, cell.repeat, cell.batch, cell.places);
  const bool known =
      one != nullptr && these != nullptr && one->second_seconds && these->second_seconds;
  if (!known || cell.places == 1) return std::nullopt;
  return *one->second_seconds / *these->second_seconds;
}

}  // namespace lockstep::bench
