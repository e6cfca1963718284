// Tables: the study's own row by row, efficiency, and what a killed worker cost.

#include <functional>

#include "bench/studies/scale_out/study.h"
#include "bench/study/table_of.h"
#include "lockstep/core/error.h"

namespace lockstep::bench::scale_out {
namespace {

constexpr const char* kPublishedWith =
    "Python PyTorch's DDP, VGG19 that began with pretrained weights, 20 classes of ImageNet, 2 "
    "hours, AWS g4dn.2xlarge nodes with one NVIDIA T4 each";
// What the formula of prediction also needs of the study: the parameters of VGG19 with 20 classes,
// float32, and the network of its nodes.
constexpr double kPublishedBytes = 139652180.0 * 4;
constexpr double kPublishedBitsPerSecond = 25e9;

/// A row of the study's table: how a number is found here and in what was published.
struct StudyRow {
  std::string head;
  std::function<std::string(const Cell&)> here;
  std::function<std::string(const PublishedNodes&)> published;
};

std::string percent_of(double share) { return decimals<2>(100 * share) + " %"; }

std::string efficiency_of(const Cells& cells, const Cell& cell) {
  if (cell.nodes == 1) return cell.median(kEpochSeconds) ? ratio_text(1) : kNone;
  return cell_text(efficiency(cells, cell), ratio_text);
}

std::vector<const Cell*> unharmed(const Cells& cells) {
  return select(cells, [](const Cell& cell) { return !cell.killed; });
}

std::string note_of(const Cell& cell) {
  const bool lacks_epoch = cell.result.reason.empty() && !cell.estimate(kEpochSeconds);
  return noted(
      {cell_note(cell.result, kEpochSeconds), lacks_epoch ? "no whole epoch in the time" : ""});
}

// What the marks in a table mean, and the reasons that were cut.
std::vector<std::string> marks_of(const Cells& cells) {
  std::vector<std::string> notes = whole_reasons(results_of(cells));
  const bool real =
      first_where(cells, [](const Cell& cell) { return !cell.bits_per_second; }) != nullptr;
  if (real) notes.insert(notes.begin(), "no prediction: the rate of a real network is not known");
  notes.insert(notes.begin(), oversubscribed_note(any_oversubscribed(cells), "nodes"));
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
double predicted_of_study(const PublishedNodes& published) {
  const PublishedNodes& one = published_nodes().front();
  const double step = one.epoch_minutes * kMinute / one.steps_an_epoch;
  return predicted_efficiency(published.nodes,
      {.seconds = step, .parameter_bytes = kPublishedBytes}, kPublishedBitsPerSecond);
}

std::vector<StudyRow> study_rows(const Cells& cells) {
  using Published = PublishedNodes;
  const std::string budget = cells.empty() ? kNone : budget_text(cells.front().budget_seconds);
  return {{"Learning Rate (e-4)", median_of("learning_rate", decimals<2>, 1e4),
              [](const Published& all) { return decimals<2>(1e4 * all.learning_rate); }},
      {"Global Batch Size", median_of("global_batch", decimals<0>),
          [](const Published& all) { return concat(all.global_batch); }},
      {"Steps Per Epoch", median_of("steps_an_epoch", decimals<0>),
          [](const Published& all) { return concat(all.steps_an_epoch); }},
      {"Avg Epoch Time (min)", median_of(kEpochSeconds, minutes_text),
          [](const Published& all) { return decimals<2>(all.epoch_minutes); }},
      {concat("Epoch Num @ ", budget), median_of(kEpochs, decimals<1>),
          [](const Published& all) { return concat(all.epochs); }},
      {"Scaling Efficiency", [&](const Cell& cell) { return efficiency_of(cells, cell); },
          [](const Published& all) { return ratio_text(all.efficiency); }},
      {"Scaling Efficiency, predicted",
          [&](const Cell& cell) {
            return cell_text(predicted_efficiency(cells, cell), ratio_text);
          },
          [](const Published& all) { return ratio_text(predicted_of_study(all)); }},
      {"Best Validation Loss", median_of(kBestValLoss, decimals<4>),
          [](const Published& all) { return decimals<4>(all.best_val_loss); }},
      {"Test Loss", median_of("test_loss", decimals<4>),
          [](const Published& all) { return decimals<4>(all.test_loss); }},
      {"Top1 Test Accuracy", median_of("test_accuracy", percent_of),
          [](const Published& all) { return percent_of(all.test_accuracy); }}};
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

std::string weights_text(const CellResult& result) {
  const std::string weights = result.setting("weights");
  return weights == "short" ? "weights of a short training" : weights + " weights";
}

// Why these cells do not begin as the study's.
std::string weights_note(const CellResult& result) {
  if (result.setting("weights") != "short") return "";
  return concat(
      "weights: all cells begin with the same, which this bench trained before on one "
      "place for a short time and at a higher rate: at the study's rate a fresh net "
      "learns little in the time. The study's were trained on ImageNet, so losses "
      "cannot be compared with its; --pretrained FILE (with --full) takes such ones");
}

std::vector<std::string> study_notes(const Cells& cells) {
  if (cells.empty()) return {};
  const CellResult& first = cells.front().result;
  return {concat("here: ", first.setting("model"), " at ", first.setting("image_size"),
              " pixels with ", weights_text(first), " on ", data_text(first), ", ",
              budget_text(cells.front().budget_seconds), " of training, the network ",
              first.setting("network"), "; medians over the rounds"),
      weights_note(first), concat("published: ", kPublishedWith),
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
  const auto share = [&](const Cell& cell) { return efficiency(cells, cell); };
  const auto interval = [&](const Cell& cell) {
    const auto found = share(cell);
    return found ? interval_text(*found) : kNone;
  };
  const auto published = [](const Cell& cell) {
    const auto* found = find_published(cell.nodes);
    return found == nullptr ? std::nullopt : std::optional(found->efficiency);
  };
  const auto note = [&](const Cell& cell) {
    const bool lacks_one = cell.estimate(kEpochSeconds) && !share(cell) && cell.nodes > 1;
    return lacks_one ? "1 node has no epoch in the same round" : note_of(cell);
  };
  return TableOf<Cell>("scale-out-efficiency", "Scaling efficiency")
      .number("nodes", &Cell::nodes)
      .estimate("epoch [s]", "its interval",
          [](const Cell& cell) { return cell.estimate(kEpochSeconds); })
      .number("efficiency here", [&](const Cell& cell) { return efficiency_of(cells, cell); })
      .number("its interval", interval)
      .number(
          "predicted", [&](const Cell& cell) { return predicted_efficiency(cells, cell); },
          ratio_text)
      .number("published", published, ratio_text)
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
    if (const Cell* same = find_nodes(cells, cell.nodes)) found.push_back(*same);
    found.push_back(cell);
  }
  return found;
}

page::Table survival_table(const Cells& cells) {
  const Cells shown = killed_and_same(cells);
  return TableOf<Cell>("scale-out-survival", "A worker is killed in the middle")
      .name("run", &Cell::name)
      .number("killed after [s]", median_of("killed_after_seconds", seconds_text))
      .number("restarts", median_of("restarts", decimals<0>))
      .number("lost [s]", median_of("lost_seconds", seconds_text))
      .number("of that made again [s]", median_of("made_again_seconds", seconds_text))
      .name(
          "ended by", [](const Cell& cell) { return cell.result.reason.empty() ? "its time" : ""; })
      .number("steps", median_of("steps", decimals<0>))
      .number("best val loss", median_of(kBestValLoss, decimals<4>))
      .number("top-1", median_of("test_accuracy", percent_of))
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

}  // namespace

std::vector<page::Table> tables(const Cells& cells) {
  return {study_table(cells), efficiency_table(cells), survival_table(cells)};
}

}  // namespace lockstep::bench::scale_out
