#include <array>
#include <functional>

#include "bench/studies/scale_out.h"
#include "bench/study/verdict.h"
#include "lockstep/core/error.h"

namespace lockstep::bench::scale_out {
namespace {

using plot::Figure;
using Cell = Measured<Point>;
using Style = plot::Series::Style;

constexpr double kMinute = 60;  // seconds
constexpr double kHour = 3600;
// What the formula of prediction also needs of the study: the parameters of VGG19 with 20 classes,
// float32, and the network of its nodes.
constexpr double kPublishedBytes = 139652180.0 * 4;
constexpr double kPublishedBitsPerSecond = 25e9;

/// The published results of training for two hours on this many nodes.
struct PublishedNodes {
  int nodes;  ///< with one GPU each
  double learning_rate;
  int global_batch;
  int steps_an_epoch;
  double epoch_minutes;  ///< mean
  int epochs;            ///< within the two hours
  double efficiency;
  double best_val_loss;
  double test_loss;
  double test_accuracy;
};

// The table of results of BrandonWherry/DistributedMachineLearningPyTorch.
constexpr std::array kPublished{
    PublishedNodes{1, 1.00e-4, 32, 650, 8.76, 14, 1.00, 0.3795, 0.4485, 0.8690},
    PublishedNodes{2, 1.41e-4, 64, 375, 5.40, 23, 0.81, 0.3646, 0.4351, 0.8730},
    PublishedNodes{4, 2.00e-4, 128, 163, 3.35, 36, 0.65, 0.3558, 0.4286, 0.8750},
    PublishedNodes{8, 2.83e-4, 256, 82, 2.37, 54, 0.46, 0.3522, 0.4287, 0.8750}};

// How cells compare.

const PublishedNodes* find_published(int nodes) {
  return first_where(kPublished, [&](const auto& each) { return each.nodes == nodes; });
}

std::optional<double> published_efficiency(const Cell& cell) {
  const auto* found = find_published(cell.nodes);
  return found == nullptr ? std::nullopt : std::optional(found->efficiency);
}

const Cell* unharmed(const Cells& cells, int nodes) {
  return first_where(cells, [&](const Cell& cell) { return cell.nodes == nodes && !cell.killed; });
}

std::vector<const Cell*> unharmed(const Cells& cells) {
  return select(cells, [](const Cell& cell) { return !cell.killed; });
}

// The time of an epoch on one node over that on several, divided by their number; nothing for one.
std::optional<Estimate> efficiency(const Cell& cell) {
  if (cell.nodes == 1) return std::nullopt;
  auto faster = ratio_of(unharmed(*cell.cells, 1), &cell, kEpochSeconds);
  if (!faster) return std::nullopt;
  for (double* part : {&faster->median, &faster->low, &faster->high}) *part /= cell.nodes;
  return faster;
}

// How many times as much of a value a cell has as one node.
std::optional<Estimate> over_one_node(const Cell& cell, const std::string& value) {
  if (cell.nodes == 1) return std::nullopt;
  return ratio_of(&cell, unharmed(*cell.cells, 1), value);
}

// Nothing where rate or step of one node is not known.
std::optional<double> predicted(const Cell& cell) {
  const Cell* one = unharmed(*cell.cells, 1);
  if (one == nullptr || !cell.bits_per_second) return std::nullopt;
  const auto step = one->median("step_seconds"), bytes = one->median("model_bytes");
  if (!step || !bytes) return std::nullopt;
  return predicted_efficiency(
      cell.nodes, {.seconds = *step, .parameter_bytes = *bytes}, *cell.bits_per_second);
}

// The training time of the study: `2 h`, `10 s`.
std::string budget_text(double seconds) {
  if (seconds >= kHour) return concat(seconds / kHour, " h");
  return seconds >= 2 * kMinute ? concat(seconds / kMinute, " min") : concat(seconds, " s");
}

// What is concluded.

// Of the nodes that have cores of their own; not one node.
std::vector<const Cell*> fair_cells(const Cells& cells) {
  return select(
      cells, [&](const Cell& cell) { return cell.is_fair() && !cell.killed && efficiency(cell); });
}

// `2 nodes: 1.50 (1.48 to 1.52) times as many epochs in the same time as one, more in every round.`
std::string epochs_text(const Cell& cell) {
  const auto epochs = over_one_node(cell, kEpochs);
  if (!epochs) return "";
  return concat(cell.nodes, " nodes: ", with_interval(*epochs),
      " times as many epochs in the same time as one, ", verdict_on(*epochs, "more", "fewer"), ".");
}

std::string loss_text(const Cell& cell) {
  const auto loss = over_one_node(cell, kBestValLoss);
  if (!loss) return "";
  // It differs in the third digit, where epochs differ in the first.
  const std::string interval = concat(" (", interval_text(*loss, decimals<4>), ")");
  return concat(cell.nodes, " nodes: the best validation loss was ", decimals<4>(loss->median),
      loss->count > 1 ? interval : "", " times that of one, ", verdict_on(*loss, "worse", "better"),
      ".");
}

std::string efficiency_text(const Cell& cell) {
  const auto share = efficiency(cell);
  if (!share) return "";
  const auto expected = predicted(cell), published = published_efficiency(cell);
  return concat(cell.nodes, " nodes: the scaling efficiency is ", with_interval(*share),
      expected ? concat(", ", ratio_text(*expected), " predicted") : "",
      published ? concat(", ", ratio_text(*published), " published") : "", ".");
}

std::string whether_it_paid(const Cell& most) {
  const auto epochs = over_one_node(most, kEpochs), loss = over_one_node(most, kBestValLoss);
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

std::string answer_of(const std::vector<const Cell*>& fair) {
  if (fair.empty()) return "No cell with several nodes has a number and cores of its own.";
  std::vector<std::string> sentences;
  for (const Cell* cell : fair) sentences.push_back(epochs_text(*cell));
  sentences.push_back(whether_it_paid(*fair.back()));
  return in_one(sentences);
}

std::string without_harm(const Cell& killed) {
  const Cell* same = unharmed(*killed.cells, killed.nodes);
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
      " s and ended by the same time of training", without_harm(*found), ".");
}

// Tables.

/// A row of the study's table: how a number is found here and in what was published.
struct StudyRow {
  std::string head;
  std::function<std::string(const Cell&)> here;
  std::function<std::string(const PublishedNodes&)> published;
};

std::string percent_of(double share) { return decimals<2>(100 * share) + " %"; }

std::string efficiency_of(const Cell& cell) {
  if (cell.nodes == 1) return cell.median(kEpochSeconds) ? ratio_text(1) : kNone;
  return cell_text(efficiency(cell), ratio_text);
}

std::string note_of(const Cell& cell) {
  const bool lacks_epoch = cell.result.reason.empty() && !cell.estimate(kEpochSeconds);
  return noted(
      {cell_note(cell.result, kEpochSeconds), lacks_epoch ? "no whole epoch in the time" : ""});
}

// What the marks in a table mean, and the reasons that were cut.
std::vector<std::string> marks_of(const Cells& cells) {
  std::vector<std::string> notes{oversubscribed_note(any_oversubscribed(cells), "nodes")};
  if (first_where(cells, [](const Cell& cell) { return !cell.bits_per_second; }) != nullptr)
    notes.emplace_back("no prediction: the rate of a real network is not known");
  for (const std::string& reason : whole_reasons(results_of(cells))) notes.push_back(reason);
  return notes;
}

// The median of a value times a factor.
std::function<std::string(const Cell&)> median_of(
    const std::string& value, NumberText text, double factor = 1) {
  return [value, text, factor](const Cell& cell) {
    const auto median = cell.median(value);
    return median ? text(factor * *median) : kNone;
  };
}

// Seconds are too short for the study's minutes with two digits.
std::string minutes_text(double seconds) { return short_cell(seconds / kMinute); }

// What the formula says of the study's own nodes.
std::string predicted_of_study(const PublishedNodes& published) {
  const double step = kPublished[0].epoch_minutes * kMinute / kPublished[0].steps_an_epoch;
  return ratio_text(predicted_efficiency(published.nodes,
      {.seconds = step, .parameter_bytes = kPublishedBytes}, kPublishedBitsPerSecond));
}

// Returns the text of a published number.
std::function<std::string(const PublishedNodes&)> text_of(
    auto PublishedNodes::*value, NumberText text, double factor = 1) {
  return [=](const PublishedNodes& all) { return text(factor * all.*value); };
}

std::vector<StudyRow> study_rows(const Cells& cells) {
  using All = PublishedNodes;
  const std::string budget = budget_text(cells.front().budget_seconds);
  return {{"Learning Rate (e-4)", median_of("learning_rate", decimals<2>, 1e4),
              text_of(&All::learning_rate, decimals<2>, 1e4)},
      {"Global Batch Size", median_of("global_batch", decimals<0>),
          text_of(&All::global_batch, decimals<0>)},
      {"Steps Per Epoch", median_of("steps_an_epoch", decimals<0>),
          text_of(&All::steps_an_epoch, decimals<0>)},
      {"Avg Epoch Time (min)", median_of(kEpochSeconds, minutes_text),
          text_of(&All::epoch_minutes, decimals<2>)},
      {concat("Epoch Num @ ", budget), median_of(kEpochs, decimals<1>),
          text_of(&All::epochs, decimals<0>)},
      {"Scaling Efficiency", efficiency_of, text_of(&All::efficiency, ratio_text)},
      {"Scaling Efficiency, predicted",
          [](const Cell& cell) { return cell_text(predicted(cell), ratio_text); },
          predicted_of_study},
      {"Best Validation Loss", median_of(kBestValLoss, decimals<4>),
          text_of(&All::best_val_loss, decimals<4>)},
      {"Test Loss", median_of("test_loss", decimals<4>), text_of(&All::test_loss, decimals<4>)},
      {"Top1 Test Accuracy", median_of("test_accuracy", percent_of),
          text_of(&All::test_accuracy, percent_of)}};
}

// Which columns of a row must be read with care.
std::string note_of_row(const std::vector<const Cell*>& columns) {
  std::vector<std::string> parts;
  for (const Cell* cell : columns) {
    const std::string note = note_of(*cell);
    if (!note.empty()) parts.push_back(concat(cell->nodes, ": ", note));
  }
  return noted(parts);
}

std::string data_text(const CellResult& result) {
  for (std::size_t at = 1; at < result.cell.command.size(); ++at) {
    if (result.cell.command[at - 1] != "--data") continue;
    const std::string& data = result.cell.command[at];
    const bool drawn = data.find(kBenchFolder) != std::string::npos;
    const std::string set = data_name(data);
    if (drawn) return set == "images" ? "images of 20 classes, drawn" : "digits, drawn";
    return set;
  }
  return "other images";
}

std::vector<std::string> study_notes(const Cells& cells) {
  const CellResult& first = cells.front().result;
  const std::string weights = first.setting("weights");
  const bool is_short = weights == "short";
  return {concat("here: ", first.setting("model"), " at ", first.setting("image_size"),
              " pixels with ", is_short ? "weights of a short training" : weights + " weights",
              " on ", data_text(first), ", ", budget_text(cells.front().budget_seconds),
              " of training, the network ", first.setting("network"), "; medians over the rounds"),
      // Why these cells do not begin as the study's.
      is_short ? "weights: all cells begin with the same, which this bench trained before on one "
                 "place for a short time and at a higher rate: at the study's rate a fresh net "
                 "learns little in the time. The study's were trained on ImageNet, so losses "
                 "cannot be compared with its; --pretrained FILE (with --full) takes such ones"
               : "",
      "published: Python PyTorch's DDP, VGG19 that began with pretrained weights, 20 classes of "
      "ImageNet, 2 hours, AWS g4dn.2xlarge nodes with one NVIDIA T4 each",
      "only the efficiency can be compared: net, images and time are others; the published 375 "
      "steps of 2 nodes do not fit 650 / 2",
      "an epoch's time includes its validation; the last epoch, which the clock cuts, counts in "
      "part; test: of the weights of the best epoch, as in the study",
      "efficiency: epoch time of 1 node / (nodes x epoch time); predicted: by lockstep plan from a "
      "step of 1 node, the bytes of the gradients and the rate, sent in a ring while backward "
      "goes on; of the published ones with 8.76 min / 650, 558 MB and 25 Gbit/s"};
}

page::Table study_table(const Cells& cells) {
  const auto columns = unharmed(cells);
  TableOf<StudyRow> table("scale-out-study", "The study's table");
  table.name("nodes:", &StudyRow::head);
  for (const Cell* cell : columns) {
    const auto* published = find_published(cell->nodes);
    table.number(
        concat(cell->nodes, " here"), [cell](const StudyRow& row) { return row.here(*cell); });
    table.number(concat(cell->nodes, " published"), [published](const StudyRow& row) {
      return published == nullptr ? kNone : row.published(*published);
    });
  }
  return table.name("note", [&](const StudyRow&) { return note_of_row(columns); })
      .notes(study_notes(cells))
      .notes(marks_of(cells))
      .of(study_rows(cells));
}

page::Table efficiency_table(const Cells& cells) {
  const auto interval = [](const Cell& cell) {
    const auto found = efficiency(cell);
    return found ? interval_text(*found) : kNone;
  };
  const auto note = [](const Cell& cell) {
    const bool lacks_one = cell.estimate(kEpochSeconds) && !efficiency(cell) && cell.nodes > 1;
    return lacks_one ? "1 node has no epoch in the same round" : note_of(cell);
  };
  return TableOf<Cell>("scale-out-efficiency", "Scaling efficiency")
      .number("nodes", &Cell::nodes)
      .estimate("epoch [s]", "its interval", kEpochSeconds)
      .number("efficiency here", efficiency_of)
      .number("its interval", interval)
      .number("predicted", predicted, ratio_text)
      .number("published", published_efficiency, ratio_text)
      .name("note", note)
      .notes({"intervals as explained in the conclusion; one round has none"})
      .notes(marks_of(cells))
      .of(unharmed(cells));
}

// The run in which a worker is killed, and the same one without.
Cells killed_and_same(const Cells& cells) {
  Cells found;
  for (const Cell& cell : cells) {
    if (!cell.killed) continue;
    if (const Cell* same = unharmed(cells, cell.nodes)) found.push_back(*same);
    found.push_back(cell);
  }
  return found;
}

page::Table survival_table(const Cells& cells) {
  const Cells shown = killed_and_same(cells);
  return TableOf<Cell>("scale-out-survival", "A worker is killed in the middle")
      .name("run", &Cell::name)
      .number("killed after [s]", "killed_after_seconds")
      .number("restarts", "restarts", decimals<0>)
      .number("lost [s]", "lost_seconds")
      .number("of that made again [s]", "made_again_seconds")
      .name(
          "ended by", [](const Cell& cell) { return cell.result.reason.empty() ? "its time" : ""; })
      .number("steps", "steps", decimals<0>)
      .number("best val loss", kBestValLoss, decimals<4>)
      .number("top-1", "test_accuracy", percent_of)
      .name("note",
          [](const Cell& cell) {
            return noted({cell.killed ? "" : "nobody was killed", note_of(cell)});
          })
      .notes({"both train for the same time, which does not include what was lost. Lost: from the "
              "snapshot that it resumed from to the death, and from there to the start of the next "
              "attempt"})
      .notes(marks_of(shown))
      .of(shown);
}

// Figures.

// What a reader must know who sees nothing but the picture.
std::string picture_note(const Cells& cells, const std::string& whiskers = "") {
  const int rounds = most_rounds(cells, "steps");
  return concat("Medians of up to ", rounds, rounds == 1 ? " round." : " rounds.",
      oversubscribed_from(cells, &Cell::nodes, "nodes"), whiskers);
}

std::optional<plot::Point> marked(std::optional<plot::Point> point, const Cell& cell) {
  if (point) point->hollow = cell.result.oversubscribed;
  return point;
}

Figure loss_figure(const Cells& cells, const std::string& what, const std::string& title,
    const std::string& label, std::string (*name)(int)) {
  const bool in_minutes = cells.front().budget_seconds >= 10 * kMinute;
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
  const auto shown = unharmed(cells);
  add_if_any(figure, series_of("here", Style::kLine, shown, [](const Cell* cell) {
    if (cell->nodes > 1) return marked(point_of(cell->nodes, efficiency(*cell)), *cell);
    return cell->median(kEpochSeconds) ? std::optional(plot::Point{1, 1}) : std::nullopt;
  }));
  add_if_any(figure, series_of("predicted", Style::kDashed, shown,
                         [](const Cell* cell) { return point_of(cell->nodes, predicted(*cell)); }));
  figure.series.push_back(
      series_of("published", Style::kDashed, kPublished, [](const PublishedNodes& each) {
        return point_of(each.nodes, std::optional(each.efficiency));
      }));
  return figure;
}

}  // namespace

double predicted_efficiency(int nodes, const plan::WholeStep& one, double bits_per_second) {
  constexpr double kBits = 8;  // of a byte
  const plan::Machine machine{
      .nodes = nodes, .between = {.bytes_per_second = bits_per_second / kBits}};
  return one.seconds / predicted_step(one, machine, {.replicas = nodes}, one.batch * nodes);
}

page::Conclusion conclusion(const Cells& cells) {
  const auto fair = fair_cells(cells);
  std::vector<std::string> remarks;
  Verdict verdict;
  for (const Cell* cell : fair) {
    remarks.push_back(loss_text(*cell));
    remarks.push_back(efficiency_text(*cell));
    verdict.add(efficiency(*cell));
  }
  remarks.insert(remarks.end(),
      {about_death(cells), verdict.explained(), about_crowd(cells, &Cell::nodes, "nodes"),
          about_missing(results_of(cells))});
  return {.answer = answer_of(fair), .remarks = remarks};
}

std::vector<page::Table> tables(const Cells& cells) {
  return {study_table(cells), efficiency_table(cells), survival_table(cells)};
}

std::vector<Figure> figures(const Cells& cells) {
  return {loss_figure(cells, "train-loss", "Training loss over time, for each number of nodes",
              "training loss", train_loss_name),
      loss_figure(cells, "val-loss", "Validation loss over time, for each number of nodes",
          "validation loss", val_loss_name),
      efficiency_figure(cells)};
}

}  // namespace lockstep::bench::scale_out
