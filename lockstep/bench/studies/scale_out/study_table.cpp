// The table that the study published, row by row.

#include <functional>

#include "lockstep/bench/studies/estimate_text.h"
#include "lockstep/bench/studies/scale_out/node_tables.h"
#include "lockstep/bench/studies/scale_out/node_texts.h"
#include "lockstep/bench/studies/scale_out/node_values.h"
#include "lockstep/bench/studies/scale_out/published_nodes.h"
#include "lockstep/bench/text_table.h"
#include "lockstep/core/error.h"

namespace lockstep::bench::scale_out {
namespace {

/// Is a row of the study's table: how a number is found here and in what was published.
struct StudyRow {
  std::string head;
  std::function<std::string(const NodeCell&)> here;
  std::function<std::string(const PublishedNodes&)> published;
};

// The median of a value times a factor.
std::function<std::string(const NodeCell&)> median_of(
    const std::string& value, int digits, double factor = 1) {
  return [value, digits, factor](const NodeCell& nodes) {
    const auto median = nodes.median(value);
    return median ? cell(factor * *median, digits) : kNone;
  };
}

// Seconds are too short for the study's minutes with two digits.
std::string minutes_text(const std::optional<double>& seconds) {
  return seconds ? short_cell(*seconds / kMinute) : kNone;
}

// What the formula says of the study's own nodes.
double predicted_of_study(const PublishedNodes& published) {
  const PublishedNodes& one = published_nodes().front();
  const double step = one.epoch_minutes * kMinute / one.steps_an_epoch;
  return ring_efficiency(published.nodes, step, kPublishedBytes, kPublishedBitsPerSecond);
}

std::vector<StudyRow> study_rows(const std::vector<NodeCell>& cells) {
  using Published = PublishedNodes;
  const std::string budget = cells.empty() ? "-" : budget_text(cells.front().budget_seconds);
  return {
      {"Learning Rate (e-4)", median_of("learning_rate", 2, 1e4),
       [](const Published& all) { return cell(1e4 * all.learning_rate, 2); }},
      {"Global Batch Size", median_of("global_batch", 0),
       [](const Published& all) { return concat(all.global_batch); }},
      {"Steps Per Epoch", median_of("steps_an_epoch", 0),
       [](const Published& all) { return concat(all.steps_an_epoch); }},
      {"Avg Epoch Time (min)",
       [](const NodeCell& nodes) { return minutes_text(nodes.median(kEpochSeconds)); },
       [](const Published& all) { return cell(all.epoch_minutes, 2); }},
      {concat("Epoch Num @ ", budget), median_of(kEpochs, 1),
       [](const Published& all) { return concat(all.epochs); }},
      {"Scaling Efficiency",
       [&cells](const NodeCell& nodes) { return efficiency_text(cells, nodes); },
       [](const Published& all) { return ratio_text(all.efficiency); }},
      {"Scaling Efficiency, predicted",
       [&cells](const NodeCell& nodes) { return predicted_text(cells, nodes); },
       [](const Published& all) { return ratio_text(predicted_of_study(all)); }},
      {"Best Validation Loss", median_of(kBestValLoss, 4),
       [](const Published& all) { return cell(all.best_val_loss, 4); }},
      {"Test Loss", median_of("test_loss", 4),
       [](const Published& all) { return cell(all.test_loss, 4); }},
      {"Top1 Test Accuracy",
       [](const NodeCell& nodes) { return percent_of(nodes.median("test_accuracy")); },
       [](const Published& all) { return percent_of(all.test_accuracy); }}};
}

// Which columns of a row must be read with care.
std::string note_of_row(const std::vector<const NodeCell*>& columns) {
  std::string note;
  for (const NodeCell* nodes : columns) {
    const std::string of_cell = note_of(*nodes);
    if (of_cell == kNone) continue;
    note += concat(note.empty() ? "" : "; ", nodes->nodes, ": ", of_cell);
  }
  return note.empty() ? kNone : note;
}

std::vector<page::Column> study_columns(const std::vector<const NodeCell*>& nodes) {
  std::vector<page::Column> columns{{"nodes:", true}};
  for (const NodeCell* each : nodes) {
    columns.push_back({concat(each->nodes, " here")});
    columns.push_back({concat(each->nodes, " published")});
  }
  columns.push_back({"note", true});
  return columns;
}

std::string data_text(const CellResult& result) {
  for (std::size_t at = 1; at < result.cell.command.size(); ++at) {
    if (result.cell.command[at - 1] != "--data") continue;
    const bool drawn = result.cell.command[at].find(kBenchFolder) != std::string::npos;
    const std::string set = result.cell.command[at].substr(0, result.cell.command[at].find(':'));
    if (drawn) return set == "images" ? "images of 20 classes, drawn" : "digits, drawn";
    return set;
  }
  return "other images";
}

std::vector<std::string> notes_of(const std::vector<NodeCell>& cells) {
  std::vector<std::string> notes;
  if (cells.empty()) return notes;
  const NodeCell& first = cells.front();
  notes.push_back(concat(
      "here: ", first.result.setting("model"), " at ", first.result.setting("image_size"),
      " pixels with ", first.result.setting("weights"), " weights on ", data_text(first.result),
      ", ", budget_text(first.budget_seconds), " of training, the network ",
      first.result.setting("network"), "; medians over the rounds"));
  notes.push_back(concat("published: ", kPublishedWith));
  notes.push_back(
      "only the efficiency can be compared: net, images and time are others; the published 375 "
      "steps of 2 nodes do not fit 650 / 2");
  notes.push_back(
      "an epoch's time has its validation in it; epochs count the last one, which the clock cuts, "
      "in part; test: of the last weights");
  notes.push_back(
      "efficiency: epoch time of 1 node / (nodes x epoch time); predicted: t / (t + 2 (n - 1) / n "
      "x bytes / rate), t a step of 1 node, bytes those of the gradients, nothing of it hidden "
      "behind the computing; of the published ones with 8.76 min / 650, 558 MB and 25 Gbit/s");
  return notes;
}

}  // namespace

page::Table study_table(const std::vector<NodeCell>& cells) {
  const auto columns = unharmed(cells);
  page::Table table{
      .id = "scale-out-study",
      .title = "The study's table",
      .columns = study_columns(columns),
      .rows = {},
      .notes = notes_of(cells)};
  for (const StudyRow& row : study_rows(cells)) {
    std::vector<std::string> texts{row.head};
    for (const NodeCell* nodes : columns) {
      const auto* published = find_published_nodes(nodes->nodes);
      texts.push_back(row.here(*nodes));
      texts.push_back(published == nullptr ? kNone : row.published(*published));
    }
    texts.push_back(note_of_row(columns));
    table.rows.push_back(texts);
  }
  add_marks(table, cells);
  return table;
}

}  // namespace lockstep::bench::scale_out
