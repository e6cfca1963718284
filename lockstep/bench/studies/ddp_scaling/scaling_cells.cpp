#include "lockstep/bench/studies/ddp_scaling/scaling_cells.h"

#include <algorithm>

#include "lockstep/bench/studies/ddp_scaling/published_times.h"
#include "lockstep/bench/studies/ddp_scaling/scaling_values.h"
#include "lockstep/core/error.h"
#include "lockstep/launch/hosts/hosts_options.h"

namespace lockstep::bench {

double ScalingCell::epoch_share() const {
  const auto share = result.estimate("epoch_share");
  return share ? share->median : 1;
}

std::string ScalingCell::name() const {
  const std::string text = concat(places, places == 1 ? " place" : " places");
  return nodes == 1 ? concat(text, " on one node") : concat(text, " on ", nodes, " nodes");
}

std::string ScalingCell::launcher() const {
  return started_by == "torchrun" ? started_by : concat("lockstep ", started_by);
}

std::vector<ScalingCell> scaling_cells(const Study& study, std::span<const Sample> samples) {
  std::vector<ScalingCell> cells;
  for (CellResult& result : cell_results(study, samples)) {
    ScalingCell& cell = cells.emplace_back();
    cell.nodes = std::stoi(result.setting("nodes"));
    cell.places = std::stoi(result.setting("places"));
    cell.started_by = result.setting("started by");
    cell.link = result.setting("link");
    cell.pixels = std::stoi(result.setting("pixels"));
    cell.result = std::move(result);
  }
  return cells;
}

const ScalingCell* scaling_cell_of(
    const std::vector<ScalingCell>& cells, int nodes, int places, const std::string& started_by) {
  const auto found = std::find_if(cells.begin(), cells.end(), [&](const ScalingCell& each) {
    return each.nodes == nodes && each.places == places && each.started_by == started_by;
  });
  return found == cells.end() ? nullptr : &*found;
}

std::optional<Estimate> scaling_speed_up(
    const std::vector<ScalingCell>& cells, const ScalingCell& cell) {
  const ScalingCell* one = scaling_cell_of(cells, 1, 1, "train");
  if (one == nullptr || cell.places == 1) return std::nullopt;
  return ratio_of(one->result, cell.result, kRunSeconds);
}

std::optional<double> published_scaling(const ScalingCell& cell) {
  const auto one = published_run_seconds(1, 1, "train");
  const auto these = published_run_seconds(cell.nodes, cell.places, cell.started_by);
  if (!one || !these || cell.places == 1) return std::nullopt;
  return *one / *these;
}

std::optional<double> predicted_run_seconds(
    const std::vector<ScalingCell>& cells, const ScalingCell& cell) {
  const ScalingCell* one = scaling_cell_of(cells, 1, 1, "train");
  const auto alone = one == nullptr ? std::nullopt : one->result.estimate(kRunSeconds);
  if (!alone || cell.places == 1 || cell.link == "real") return std::nullopt;
  const double computing = alone->median / cell.places;
  if (cell.nodes == 1) return computing;
  const auto rate = static_cast<double>(launch::parse_rate(cell.link));
  return computing + seconds_on_link(cell.places, rate);
}

}  // namespace lockstep::bench
