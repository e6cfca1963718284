#include <algorithm>
#include <utility>

#include "bench/statistics/estimate_text.h"
#include "bench/studies/scale_out/study.h"
#include "bench/study/figure_of.h"
#include "bench/study/verdict.h"
#include "lockstep/core/error.h"

namespace lockstep::bench::scale_out {
namespace {

using plot::Figure;
using Style = plot::Series::Style;

constexpr double kHour = 3600;

// What a reader must know who sees nothing but the picture.
std::string picture_note(const Cells& cells, const std::string& whiskers = "") {
  const int rounds = most_rounds(cells, "steps"), over = least_oversubscribed(cells, &Cell::nodes);
  return concat("Medians of up to ", rounds, rounds == 1 ? " round." : " rounds.",
      over == 0 ? "" : concat(" From ", over, " nodes on oversubscribed."), whiskers);
}

std::optional<plot::Point> marked(std::optional<plot::Point> point, const Cell& cell) {
  if (point) point->hollow = cell.result.oversubscribed;
  return point;
}

Figure loss_figure(const Cells& cells, const std::string& what, const std::string& title,
    const std::string& label, std::string (*name)(int)) {
  const double budget = cells.empty() ? 1 : cells.front().budget_seconds;
  const bool in_minutes = budget >= 10 * kMinute;
  Figure figure{.id = "scale-out-" + what,
      .title = title,
      .x = {.label = concat("training time [", in_minutes ? "min" : "s", "]")},
      .y = {.label = label},
      .series = {},
      .note = picture_note(cells)};
  for (const Cell& cell : cells) {
    add_if_any(figure, series_of(cell.name(), Style::kLine, curve_percents(), [&](int percent) {
      const double time = cell.budget_seconds * percent / 100 / (in_minutes ? kMinute : 1);
      return marked(point_of(time, cell.median(name(percent))), cell);
    }));
  }
  return figure;
}

Figure efficiency_figure(const Cells& cells) {
  Figure figure{.id = "scale-out-efficiency",
      .title = "Scaling efficiency over nodes",
      .x = {.label = "nodes"},
      .y = {.label = "efficiency"},
      .series = {},
      .note = picture_note(cells,
          " Whiskers are intervals. Predicted: gradients are sent while backward goes on. "
          "Published: AWS g4dn.2xlarge nodes.")};
  const auto unharmed = select(cells, [](const Cell& cell) { return !cell.killed; });
  add_if_any(figure, series_of("here", Style::kLine, unharmed, [&](const Cell* cell) {
    if (cell->nodes > 1) return marked(point_of(cell->nodes, efficiency(cells, *cell)), *cell);
    return cell->median(kEpochSeconds) ? std::optional(plot::Point{1, 1}) : std::nullopt;
  }));
  add_if_any(figure, series_of("predicted", Style::kDashed, unharmed, [&](const Cell* cell) {
    return point_of(cell->nodes, predicted_efficiency(cells, *cell));
  }));
  figure.series.push_back(
      series_of("published", Style::kDashed, published_nodes(), [](const PublishedNodes& each) {
        return point_of(each.nodes, std::optional(each.efficiency));
      }));
  return figure;
}

// Of the nodes that have cores of their own; not one node.
std::vector<const Cell*> fair_cells(const Cells& cells) {
  return select(cells,
      [&](const Cell& cell) { return cell.is_fair() && !cell.killed && efficiency(cells, cell); });
}

// `2 nodes: 1.50 (1.48 to 1.52) times as many epochs in the same time as one, more in every round.`
std::string epochs_text(const Cells& cells, const Cell& cell) {
  const auto epochs = over_one_node(cells, cell, kEpochs);
  if (!epochs) return "";
  return concat(cell.nodes, " nodes: ", with_interval(*epochs),
      " times as many epochs in the same time as one, ", verdict_on(*epochs, "more", "fewer"), ".");
}

std::string loss_text(const Cells& cells, const Cell& cell) {
  const auto loss = over_one_node(cells, cell, kBestValLoss);
  if (!loss) return "";
  // It differs in the third digit, where epochs differ in the first.
  const std::string interval = concat(" (", interval_text(*loss, decimals<4>), ")");
  return concat(cell.nodes, " nodes: the best validation loss was ", decimals<4>(loss->median),
      loss->count > 1 ? interval : "", " times that of one, ", verdict_on(*loss, "worse", "better"),
      ".");
}

std::string efficiency_text(const Cells& cells, const Cell& cell) {
  const auto share = efficiency(cells, cell);
  if (!share) return "";
  const auto predicted = predicted_efficiency(cells, cell);
  const auto* published = find_published(cell.nodes);
  return concat(cell.nodes, " nodes: the scaling efficiency is ", with_interval(*share),
      predicted ? concat(", ", ratio_text(*predicted), " predicted") : "",
      published == nullptr ? "" : concat(", ", ratio_text(published->efficiency), " published"),
      ".");
}

std::string whether_it_paid(const Cells& cells, const Cell& most) {
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
    return "Scaling out paid in epochs; that more was learned in the same time is not shown, "
           "because the batches were larger and the steps no more.";
  }
  return "Whether scaling out paid is not shown.";
}

std::string answer_of(const Cells& cells) {
  const auto fair = fair_cells(cells);
  if (fair.empty()) return "No cell with several nodes has a number and cores of its own.";
  std::vector<std::string> sentences;
  for (const Cell* cell : fair) sentences.push_back(epochs_text(cells, *cell));
  sentences.push_back(whether_it_paid(cells, *fair.back()));
  return in_one(sentences);
}

std::string without_harm(const Cells& cells, const Cell& killed) {
  const Cell* same = find_nodes(cells, killed.nodes);
  const auto with = killed.median(kBestValLoss);
  const auto without = same == nullptr ? std::nullopt : same->median(kBestValLoss);
  if (!with || !without) return "";
  return concat(", at a best validation loss of ", decimals<4>(*with), " (", decimals<4>(*without),
      " without a death)");
}

std::string about_death(const Cells& cells) {
  const Cell* found = first_where(cells, [](const Cell& cell) { return cell.killed; });
  if (found == nullptr) return "";
  if (!found->result.reason.empty()) return "The run with a killed worker has no number.";
  const auto restarts = found->median("restarts"), lost = found->median("lost_seconds");
  const auto after = found->median("killed_after_seconds");
  if (!restarts || !lost || !after) return "";
  return concat("A worker of ", found->nodes, " nodes was killed after ", seconds_text(*after),
      " s of ", budget_text(found->budget_seconds), ": the run continued by itself (", *restarts,
      *restarts == 1 ? " restart" : " restarts", "), lost ", seconds_text(*lost),
      " s and ended by the same time of training", without_harm(cells, *found), ".");
}

std::string about_cores(const Cells& cells) {
  const int over = least_oversubscribed(cells, &Cell::nodes);
  return over == 0 ? "" : about_oversubscribed(concat(over, " nodes"));
}

}  // namespace

std::string Point::name() const {
  return concat(nodes, nodes == 1 ? " node" : " nodes", killed ? ", a worker killed" : "");
}

const std::vector<PublishedNodes>& published_nodes() {
  // The table of results of BrandonWherry/DistributedMachineLearningPyTorch.
  static const std::vector<PublishedNodes> kNodes{
      {1, 1.00e-4, 32, 650, 8.76, 14, 1.00, 0.3795, 0.4485, 0.8690},
      {2, 1.41e-4, 64, 375, 5.40, 23, 0.81, 0.3646, 0.4351, 0.8730},
      {4, 2.00e-4, 128, 163, 3.35, 36, 0.65, 0.3558, 0.4286, 0.8750},
      {8, 2.83e-4, 256, 82, 2.37, 54, 0.46, 0.3522, 0.4287, 0.8750}};
  return kNodes;
}

const PublishedNodes* find_published(int nodes) {
  return first_where(
      published_nodes(), [&](const PublishedNodes& each) { return each.nodes == nodes; });
}

const Cell* find_nodes(const Cells& cells, int nodes, bool killed) {
  return first_where(
      cells, [&](const Cell& cell) { return cell.nodes == nodes && cell.killed == killed; });
}

std::optional<Estimate> efficiency(const Cells& cells, const Cell& cell) {
  if (cell.nodes == 1) return std::nullopt;
  auto faster = ratio_of(find_nodes(cells, 1), &cell, kEpochSeconds);
  if (!faster) return std::nullopt;
  for (double* part : {&faster->median, &faster->low, &faster->high}) *part /= cell.nodes;
  return faster;
}

std::optional<Estimate> over_one_node(
    const Cells& cells, const Cell& cell, const std::string& value) {
  if (cell.nodes == 1) return std::nullopt;
  return ratio_of(&cell, find_nodes(cells, 1), value);
}

double predicted_efficiency(int nodes, const plan::WholeStep& one, double bits_per_second) {
  return one.seconds / predicted_on_nodes(one, nodes, one.batch * nodes, bits_per_second);
}

std::optional<double> predicted_efficiency(const Cells& cells, const Cell& cell) {
  const Cell* one = find_nodes(cells, 1);
  if (one == nullptr || !cell.bits_per_second) return std::nullopt;
  const auto step = one->median("step_seconds"), bytes = one->median("model_bytes");
  if (!step || !bytes) return std::nullopt;
  return predicted_efficiency(
      cell.nodes, {.seconds = *step, .parameter_bytes = *bytes}, *cell.bits_per_second);
}

std::string budget_text(double seconds) {
  if (seconds >= kHour) return concat(seconds / kHour, " h");
  return seconds >= 2 * kMinute ? concat(seconds / kMinute, " min") : concat(seconds, " s");
}

std::vector<Figure> figures(const Cells& cells) {
  return {loss_figure(cells, "train-loss", "Training loss over time, for each number of nodes",
              "training loss", train_loss_name),
      loss_figure(cells, "val-loss", "Validation loss over time, for each number of nodes",
          "validation loss", val_loss_name),
      efficiency_figure(cells)};
}

page::Conclusion conclusion(const Cells& cells) {
  if (cells.empty()) return {.answer = "The study has no cells."};
  std::vector<std::string> remarks;
  Verdict verdict;
  for (const Cell* cell : fair_cells(cells)) {
    remarks.push_back(loss_text(cells, *cell));
    remarks.push_back(efficiency_text(cells, *cell));
    verdict.add(efficiency(cells, *cell));
  }
  for (const auto& remark : {about_death(cells), verdict.explained(), about_cores(cells),
           about_missing(results_of(cells))}) {
    remarks.push_back(remark);
  }
  return {.answer = answer_of(cells), .remarks = said(remarks)};
}

}  // namespace lockstep::bench::scale_out
