#include "lockstep/bench/studies/scale_out/node_texts.h"

#include <algorithm>

#include "lockstep/bench/studies/cell_note.h"
#include "lockstep/bench/studies/estimate_text.h"
#include "lockstep/bench/studies/scale_out/node_values.h"
#include "lockstep/bench/text_table.h"

namespace lockstep::bench::scale_out {

std::string percent_of(const std::optional<double>& share) {
  return share ? cell(100 * *share, 2) + " %" : kNone;
}

std::string efficiency_text(const std::vector<NodeCell>& cells, const NodeCell& nodes) {
  if (nodes.nodes == 1) return nodes.median(kEpochSeconds) ? ratio_text(1) : kNone;
  const auto found = efficiency(cells, nodes);
  return found ? ratio_text(found->median) : kNone;
}

std::string predicted_text(const std::vector<NodeCell>& cells, const NodeCell& nodes) {
  const auto found = predicted_efficiency(cells, nodes);
  return found ? ratio_text(*found) : kNone;
}

std::vector<const NodeCell*> unharmed(const std::vector<NodeCell>& cells) {
  std::vector<const NodeCell*> found;
  for (const NodeCell& each : cells) {
    if (!each.killed) found.push_back(&each);
  }
  return found;
}

void add_marks(page::Table& table, const std::vector<NodeCell>& cells) {
  const bool over = std::any_of(
      cells.begin(), cells.end(), [](const NodeCell& each) { return each.result.oversubscribed; });
  if (over) {
    table.notes.push_back(
        "oversubscribed: more nodes than cores; they take each other's time, so it is no fair test "
        "of that many nodes");
  }
  const bool real = std::any_of(
      cells.begin(), cells.end(), [](const NodeCell& each) { return !each.bits_per_second; });
  if (real) table.notes.push_back("no prediction: the rate of a real network is not known");
  std::vector<CellResult> results;
  for (const NodeCell& each : cells) results.push_back(each.result);
  for (const std::string& reason : whole_reasons(results)) table.notes.push_back(reason);
}

}  // namespace lockstep::bench::scale_out
