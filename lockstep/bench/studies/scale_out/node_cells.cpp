#include "lockstep/bench/studies/scale_out/node_cells.h"

#include <algorithm>

#include "lockstep/bench/studies/cell_note.h"
#include "lockstep/bench/studies/scale_out/node_values.h"
#include "lockstep/core/error.h"

namespace lockstep::bench::scale_out {
namespace {

constexpr double kHour = 3600;
constexpr double kGigabit = 1e9;

// As tc takes it, in the one unit that our plans use.
std::optional<double> bits_per_second(const std::string& network) {
  const std::string unit = "gbit";
  if (!network.ends_with(unit)) return std::nullopt;
  return std::stod(network.substr(0, network.size() - unit.size())) * kGigabit;
}

}  // namespace

std::string NodeCell::name() const {
  return concat(nodes, nodes == 1 ? " node" : " nodes", killed ? ", a worker killed" : "");
}

std::optional<double> NodeCell::median(const std::string& value) const {
  const auto estimate = result.estimate(value);
  return estimate ? std::optional<double>(estimate->median) : std::nullopt;
}

std::vector<NodeCell> node_cells(const Study& study, std::span<const Sample> samples) {
  std::vector<NodeCell> cells;
  for (CellResult& result : cell_results(study, samples)) {
    cells.push_back(
        {.nodes = std::stoi(result.setting("nodes")),
         .killed = result.setting("killed") == "yes",
         .budget_seconds = std::stod(result.setting("budget_seconds")),
         .bits_per_second = bits_per_second(result.setting("network")),
         .result = {}});
    cells.back().result = std::move(result);
  }
  return cells;
}

const NodeCell* find_nodes(const std::vector<NodeCell>& cells, int nodes, bool killed) {
  const auto found = std::find_if(cells.begin(), cells.end(), [&](const NodeCell& cell) {
    return cell.nodes == nodes && cell.killed == killed;
  });
  return found == cells.end() ? nullptr : &*found;
}

std::optional<Estimate> efficiency(const std::vector<NodeCell>& cells, const NodeCell& cell) {
  const NodeCell* one = find_nodes(cells, 1);
  if (one == nullptr || cell.nodes == 1) return std::nullopt;
  auto faster = ratio_of(one->result, cell.result, kEpochSeconds);
  if (!faster) return std::nullopt;
  for (double* part : {&faster->median, &faster->low, &faster->high}) *part /= cell.nodes;
  return faster;
}

std::optional<Estimate> over_one_node(
    const std::vector<NodeCell>& cells, const NodeCell& cell, const std::string& value) {
  const NodeCell* one = find_nodes(cells, 1);
  if (one == nullptr || cell.nodes == 1) return std::nullopt;
  return ratio_of(cell.result, one->result, value);
}

double ring_efficiency(int nodes, double step_seconds, double bytes, double bits_per_second) {
  const double sent = 2.0 * (nodes - 1) / nodes * bytes;
  return step_seconds / (step_seconds + sent * 8 / bits_per_second);
}

std::optional<double> predicted_efficiency(
    const std::vector<NodeCell>& cells, const NodeCell& cell) {
  const NodeCell* one = find_nodes(cells, 1);
  if (one == nullptr || !cell.bits_per_second) return std::nullopt;
  const auto step = one->median("step_seconds"), bytes = one->median("model_bytes");
  if (!step || !bytes) return std::nullopt;
  return ring_efficiency(cell.nodes, *step, *bytes, *cell.bits_per_second);
}

std::string note_of(const NodeCell& cell) {
  const std::string note = cell_note(cell.result, kEpochSeconds);
  const bool has_epoch = cell.result.estimate(kEpochSeconds).has_value();
  if (!cell.result.reason.empty() || has_epoch) return note;
  const std::string missing = "no whole epoch in the time";
  return note == "-" ? missing : concat(note, "; ", missing);
}

std::string budget_text(double seconds) {
  if (seconds >= kHour) return concat(seconds / kHour, " h");
  return seconds >= 2 * kMinute ? concat(seconds / kMinute, " min") : concat(seconds, " s");
}

}  // namespace lockstep::bench::scale_out
