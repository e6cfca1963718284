#include "lockstep/bench/studies/scale_out/node_tables.h"

#include "lockstep/bench/studies/estimate_text.h"
#include "lockstep/bench/studies/scale_out/node_texts.h"
#include "lockstep/bench/studies/scale_out/node_values.h"
#include "lockstep/bench/studies/scale_out/published_nodes.h"
#include "lockstep/bench/text_table.h"
#include "lockstep/core/error.h"

namespace lockstep::bench::scale_out {
namespace {

using Row = std::vector<std::string>;

Row efficiency_row(const std::vector<NodeCell>& cells, const NodeCell& nodes) {
  const auto seconds = nodes.result.estimate(kEpochSeconds);
  const auto found = efficiency(cells, nodes);
  const auto* published = find_published_nodes(nodes.nodes);
  std::string note = note_of(nodes);
  const bool lacks_one = seconds && !found && nodes.nodes > 1;
  if (lacks_one) note = "1 node has no epoch in the same round";
  return {
      concat(nodes.nodes),
      seconds ? seconds_text(seconds->median) : kNone,
      seconds ? seconds_interval(*seconds) : kNone,
      efficiency_text(cells, nodes),
      found ? ratio_interval(*found) : kNone,
      predicted_text(cells, nodes),
      published == nullptr ? kNone : ratio_text(published->efficiency),
      note};
}

// The run in which a worker is killed, and the same one without.
std::vector<NodeCell> killed_and_same(const std::vector<NodeCell>& cells) {
  std::vector<NodeCell> found;
  for (const NodeCell& nodes : cells) {
    if (!nodes.killed) continue;
    const NodeCell* same = find_nodes(cells, nodes.nodes);
    if (same != nullptr) found.push_back(*same);
    found.push_back(nodes);
  }
  return found;
}

Row survival_row(const NodeCell& nodes) {
  const auto text = [&](const std::string& value, auto&& writer) {
    const auto median = nodes.median(value);
    return median ? writer(*median) : std::string(kNone);
  };
  const auto seconds = [&](const std::string& value) { return text(value, seconds_text); };
  const auto loss = [](double value) { return cell(value, 4); };
  const auto count = [](double value) { return cell(value, 0); };
  std::string note = note_of(nodes);
  if (!nodes.killed)
    note = concat("nobody was killed", note == kNone ? "" : "; ", note == kNone ? "" : note);
  return {
      nodes.name(),
      seconds("killed_after_seconds"),
      text("restarts", count),
      seconds("lost_seconds"),
      seconds("made_again_seconds"),
      nodes.result.reason.empty() ? "its time" : kNone,
      text("steps", count),
      text(kBestValLoss, loss),
      percent_of(nodes.median("test_accuracy")),
      note};
}

}  // namespace

page::Table efficiency_table(const std::vector<NodeCell>& cells) {
  page::Table table{
      .id = "scale-out-efficiency",
      .title = "Scaling efficiency",
      .columns =
          {{"nodes"},
           {"epoch [s]"},
           {"its interval"},
           {"efficiency here"},
           {"its interval"},
           {"predicted"},
           {"published"},
           {"note", true}},
      .rows = {},
      .notes = {"intervals as said in the conclusion; one round has none"}};
  for (const NodeCell* nodes : unharmed(cells)) {
    table.rows.push_back(efficiency_row(cells, *nodes));
  }
  add_marks(table, cells);
  return table;
}

page::Table survival_table(const std::vector<NodeCell>& cells) {
  page::Table table{
      .id = "scale-out-survival",
      .title = "A worker is killed in the middle",
      .columns =
          {{"run", true},
           {"killed after [s]"},
           {"restarts"},
           {"lost [s]"},
           {"of that made again [s]"},
           {"ended by", true},
           {"steps"},
           {"best val loss"},
           {"top-1"},
           {"note", true}},
      .rows = {},
      .notes = {
          "both train for the same time, and what was lost is no part of it. Lost: from the "
          "snapshot that it went on from to the death, and from there to the next life's start"}};
  const std::vector<NodeCell> shown = killed_and_same(cells);
  for (const NodeCell& nodes : shown) table.rows.push_back(survival_row(nodes));
  add_marks(table, shown);
  return table;
}

}  // namespace lockstep::bench::scale_out
