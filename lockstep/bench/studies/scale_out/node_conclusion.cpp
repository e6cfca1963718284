#include "lockstep/bench/studies/scale_out/node_conclusion.h"

#include <algorithm>
#include <optional>

#include "lockstep/bench/studies/conclusion_text.h"
#include "lockstep/bench/studies/estimate_text.h"
#include "lockstep/bench/studies/scale_out/node_values.h"
#include "lockstep/bench/studies/scale_out/published_nodes.h"
#include "lockstep/bench/studies/sureness.h"
#include "lockstep/bench/text_table.h"
#include "lockstep/core/error.h"

namespace lockstep::bench::scale_out {
namespace {

// Of the nodes that have cores of their own; nothing for one.
std::vector<const NodeCell*> fair_cells(const std::vector<NodeCell>& cells) {
  std::vector<const NodeCell*> fair;
  for (const NodeCell& cell : cells) {
    if (cell.is_fair() && !cell.killed && efficiency(cells, cell)) fair.push_back(&cell);
  }
  return fair;
}

// `2 nodes: 1.50 (1.48 to 1.52) times as many epochs in the same time as one, more in every round.`
std::string epochs_text(const std::vector<NodeCell>& cells, const NodeCell& cell) {
  const auto epochs = over_one_node(cells, cell, kEpochs);
  if (!epochs) return "";
  return concat(
      cell.nodes, " nodes: ", with_interval(*epochs),
      " times as many epochs in the same time as one, ", told_from_one(*epochs, "more", "fewer"),
      ".");
}

std::string loss_text(const std::vector<NodeCell>& cells, const NodeCell& nodes) {
  const auto loss = over_one_node(cells, nodes, kBestValLoss);
  if (!loss) return "";
  // It differs in the third digit, where epochs differ in the first.
  const std::string interval = concat(" (", cell(loss->low, 4), " to ", cell(loss->high, 4), ")");
  return concat(
      nodes.nodes, " nodes: the best validation loss was ", cell(loss->median, 4),
      loss->count > 1 ? interval : "", " times that of one, ",
      told_from_one(*loss, "worse", "better"), ".");
}

std::string efficiency_text(const std::vector<NodeCell>& cells, const NodeCell& cell) {
  const auto share = efficiency(cells, cell);
  if (!share) return "";
  const auto predicted = predicted_efficiency(cells, cell);
  const auto* published = find_published_nodes(cell.nodes);
  return concat(
      cell.nodes, " nodes: the scaling efficiency is ", with_interval(*share),
      predicted ? concat(", ", ratio_text(*predicted), " predicted") : "",
      published == nullptr ? "" : concat(", ", ratio_text(published->efficiency), " published"),
      ".");
}

std::string verdict(const std::vector<NodeCell>& cells, const NodeCell& most) {
  const auto epochs = over_one_node(cells, most, kEpochs);
  const auto loss = over_one_node(cells, most, kBestValLoss);
  if (below_one(epochs) && below_one(loss)) {
    return "Fewer epochs were made, and yet more was learned in the same time.";
  }
  if (below_one(epochs)) return "Scaling out did not pay here.";
  if (above_one(epochs) && below_one(loss)) {
    return "Scaling out paid here, in epochs and in what was learned in the same time.";
  }
  if (above_one(epochs)) {
    return "Scaling out paid in epochs; that more was learned in the same time is not shown, for "
           "the batches were larger and the steps no more.";
  }
  return "Whether scaling out paid is not shown.";
}

std::string answer_of(const std::vector<NodeCell>& cells) {
  const auto fair = fair_cells(cells);
  if (fair.empty()) return "No cell with several nodes has a number and cores of its own.";
  std::vector<std::string> sentences;
  for (const NodeCell* cell : fair) sentences.push_back(epochs_text(cells, *cell));
  sentences.push_back(verdict(cells, *fair.back()));
  return in_one(sentences);
}

std::string without_harm(const std::vector<NodeCell>& cells, const NodeCell& killed) {
  const NodeCell* same = find_nodes(cells, killed.nodes);
  const auto with = killed.median(kBestValLoss);
  const auto without = same == nullptr ? std::nullopt : same->median(kBestValLoss);
  if (!with || !without) return "";
  return concat(
      ", at a best validation loss of ", cell(with, 4), " (", cell(without, 4),
      " without a death)");
}

std::string about_death(const std::vector<NodeCell>& cells) {
  const auto found =
      std::find_if(cells.begin(), cells.end(), [](const NodeCell& cell) { return cell.killed; });
  if (found == cells.end()) return "";
  if (!found->result.reason.empty()) return "The run with a killed worker has no number.";
  const auto restarts = found->median("restarts"), lost = found->median("lost_seconds");
  const auto after = found->median("killed_after_seconds");
  if (!restarts || !lost || !after) return "";
  return concat(
      "A worker of ", found->nodes, " nodes was killed after ", seconds_text(*after), " s of ",
      budget_text(found->budget_seconds), ": the run went on by itself (", *restarts,
      *restarts == 1 ? " restart" : " restarts", "), lost ", seconds_text(*lost),
      " s and ended by the same time of training", without_harm(cells, *found), ".");
}

std::string how_sure(const std::vector<NodeCell>& cells) {
  std::vector<Estimate> ratios;
  for (const NodeCell* cell : fair_cells(cells)) ratios.push_back(*efficiency(cells, *cell));
  return about_sureness(ratios);
}

std::string about_cores(const std::vector<NodeCell>& cells) {
  int over = 0;
  for (const NodeCell& cell : cells) {
    if (cell.result.oversubscribed && (over == 0 || cell.nodes < over)) over = cell.nodes;
  }
  return over == 0 ? "" : about_oversubscribed(concat(over, " nodes"));
}

}  // namespace

page::Conclusion node_conclusion(const std::vector<NodeCell>& cells) {
  if (cells.empty()) return {.answer = "The study has no cells."};
  std::vector<std::string> remarks;
  for (const NodeCell* cell : fair_cells(cells)) {
    remarks.push_back(loss_text(cells, *cell));
    remarks.push_back(efficiency_text(cells, *cell));
  }
  for (const auto& remark :
       {about_death(cells), how_sure(cells), about_cores(cells),
        about_missing(count_missing(cells), cells.size())}) {
    remarks.push_back(remark);
  }
  return {.answer = answer_of(cells), .remarks = said(remarks)};
}

}  // namespace lockstep::bench::scale_out
