#include "lockstep/bench/studies/scale_out/node_conclusion.h"

#include <algorithm>
#include <optional>

#include "lockstep/bench/studies/estimate_text.h"
#include "lockstep/bench/studies/scale_out/node_values.h"
#include "lockstep/bench/studies/scale_out/published_nodes.h"
#include "lockstep/bench/text_table.h"
#include "lockstep/core/error.h"

namespace lockstep::bench::scale_out {
namespace {

std::string with_interval(const Estimate& ratio) {
  const std::string interval = ratio_interval(ratio);
  return ratio_text(ratio.median) + (interval == "-" ? "" : " (" + interval + ")");
}

// Of the nodes that have cores of their own; nothing for one.
std::vector<const NodeCell*> fair_cells(const std::vector<NodeCell>& cells) {
  std::vector<const NodeCell*> fair;
  for (const NodeCell& cell : cells) {
    if (cell.is_fair() && !cell.killed && efficiency(cells, cell)) fair.push_back(&cell);
  }
  return fair;
}

std::string sure_text(
    const std::optional<Estimate>& ratio, const std::string& above, const std::string& below) {
  if (above_one(ratio)) return "surely " + above;
  if (below_one(ratio)) return "surely " + below;
  return ratio && ratio->count > 1 ? "not told apart" : "one round, so not sure";
}

std::string loss_text(const std::vector<NodeCell>& cells, const NodeCell& nodes) {
  const auto loss = over_one_node(cells, nodes, kBestValLoss);
  if (!loss) return "";
  // It differs in the third digit, where epochs differ in the first.
  const std::string interval = concat(" (", cell(loss->low, 4), " to ", cell(loss->high, 4), ")");
  return concat(
      "; the best validation loss was ",
      cell(loss->median, 4),
      loss->count > 1 ? interval : "",
      " times that of one: ",
      sure_text(loss, "worse", "better"));
}

std::string paid_text(const std::vector<NodeCell>& cells, const NodeCell& cell) {
  const auto share = efficiency(cells, cell);
  const auto epochs = over_one_node(cells, cell, kEpochs);
  const auto predicted = predicted_efficiency(cells, cell);
  const auto* published = find_published_nodes(cell.nodes);
  std::string text = concat(cell.nodes, " nodes: ");
  if (epochs) {
    text += concat(
        with_interval(*epochs),
        " times as many epochs in the same time as one: ",
        sure_text(epochs, "more", "fewer"),
        loss_text(cells, cell),
        ". ");
  }
  text += concat("Their scaling efficiency is ", with_interval(*share));
  if (predicted) text += concat(", ", ratio_text(*predicted), " predicted");
  if (published != nullptr) text += concat(", ", ratio_text(published->efficiency), " published");
  return text + ". ";
}

std::string verdict(const std::vector<NodeCell>& cells, const NodeCell& most) {
  const auto epochs = over_one_node(cells, most, kEpochs);
  const auto loss = over_one_node(cells, most, kBestValLoss);
  if (below_one(epochs) && below_one(loss)) {
    return "Fewer epochs were made, and yet more was learned in the same time. ";
  }
  if (below_one(epochs)) return "Scaling out did not pay here. ";
  if (above_one(epochs) && below_one(loss)) {
    return "Scaling out paid here, in epochs and in what was learned in the same time. ";
  }
  if (above_one(epochs)) {
    return "Scaling out paid in epochs; that more was learned in the same time is not shown, for "
           "the batches were larger and the steps no more. ";
  }
  return "Whether scaling out paid is not shown. ";
}

std::string about_nodes(const std::vector<NodeCell>& cells) {
  const auto fair = fair_cells(cells);
  if (fair.empty()) return "No cell with several nodes has a number and cores of its own. ";
  std::string text;
  for (const NodeCell* cell : fair) text += paid_text(cells, *cell);
  return text + verdict(cells, *fair.back());
}

std::string without_harm(const std::vector<NodeCell>& cells, const NodeCell& killed) {
  const NodeCell* same = find_nodes(cells, killed.nodes);
  const auto with = killed.median(kBestValLoss);
  const auto without = same == nullptr ? std::nullopt : same->median(kBestValLoss);
  if (!with || !without) return "";
  return concat(
      ", at a best validation loss of ",
      cell(with, 4),
      " (",
      cell(without, 4),
      " without a death)");
}

std::string about_death(const std::vector<NodeCell>& cells) {
  const auto found =
      std::find_if(cells.begin(), cells.end(), [](const NodeCell& cell) { return cell.killed; });
  if (found == cells.end()) return "";
  if (!found->result.reason.empty()) return "The run with a killed worker has no number. ";
  const auto restarts = found->median("restarts"), lost = found->median("lost_seconds");
  const auto after = found->median("killed_after_seconds");
  if (!restarts || !lost || !after) return "";
  return concat(
      "A worker of ",
      found->nodes,
      " nodes was killed after ",
      seconds_text(*after),
      " s of ",
      budget_text(found->budget_seconds),
      ": the run went on by itself (",
      *restarts,
      *restarts == 1 ? " restart" : " restarts",
      "), lost ",
      seconds_text(*lost),
      " s and ended by the same time of training",
      without_harm(cells, *found),
      ". ");
}

std::string about_sureness(const std::vector<NodeCell>& cells) {
  std::optional<Estimate> least;
  for (const NodeCell* cell : fair_cells(cells)) {
    const auto ratio = efficiency(cells, *cell);
    if (!least || ratio->count < least->count) least = ratio;
  }
  if (!least) return "";
  if (least->count < 2) {
    return "One round was measured: there is no interval, and nothing is sure. ";
  }
  return concat(
      "Sure means that the whole interval over ",
      least->count,
      " rounds lies on one side of 1; it holds the true ratio with a probability of ",
      percent_text(least->confidence),
      ". ");
}

std::string about_missing(const std::vector<NodeCell>& cells) {
  int over = 0;
  std::ptrdiff_t missing = 0;
  for (const NodeCell& cell : cells) {
    if (!cell.result.reason.empty()) ++missing;
    if (cell.result.oversubscribed && (over == 0 || cell.nodes < over)) over = cell.nodes;
  }
  std::string text;
  if (over > 0) {
    text += concat(
        over,
        " nodes are more than there are cores: such cells are marked oversubscribed, are no fair "
        "test and no part of this. ");
  }
  if (missing > 0) {
    text += concat(missing, " of ", cells.size(), " cells have no number: the tables say why. ");
  }
  return text;
}

}  // namespace

std::string node_conclusion(const std::vector<NodeCell>& cells) {
  if (cells.empty()) return "The study has no cells.";
  std::string text =
      about_nodes(cells) + about_death(cells) + about_sureness(cells) + about_missing(cells);
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

}  // namespace lockstep::bench::scale_out
