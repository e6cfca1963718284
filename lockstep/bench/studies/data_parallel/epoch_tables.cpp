#include "lockstep/bench/studies/data_parallel/epoch_tables.h"

#include <algorithm>

#include "lockstep/bench/studies/cell_note.h"
#include "lockstep/bench/studies/data_parallel/published_epochs.h"
#include "lockstep/bench/studies/estimate_text.h"
#include "lockstep/bench/studies/sureness.h"
#include "lockstep/bench/text_table.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using Row = std::vector<std::string>;

constexpr const char* kNone = "-";

std::vector<page::Column> columns(const std::vector<std::string>& names) {
  std::vector<page::Column> all{{"model", true}, {"repeat"}, {"batch"}, {"places"}, {"way", true}};
  for (const std::string& name : names) all.push_back({name});
  all.push_back({"note", true});
  return all;
}

Row coordinates(const EpochCell& cell) {
  return {
      cell.model, std::to_string(cell.repeat), std::to_string(cell.batch),
      std::to_string(cell.places), cell.way};
}

std::string median_seconds(const std::optional<Estimate>& estimate) {
  return estimate ? seconds_text(estimate->median) : kNone;
}

std::string published_seconds(const std::optional<double>& seconds) {
  return seconds ? seconds_text(*seconds) : kNone;
}

// Notes of the table: what the marks in its last column mean.
std::vector<std::string> explanations(const std::vector<EpochCell>& cells) {
  std::vector<std::string> notes{
      "batch is that of each place; medians over the rounds, intervals as said in the conclusion"};
  const auto any = [&](auto&& holds) { return std::any_of(cells.begin(), cells.end(), holds); };
  if (any([](const EpochCell& cell) { return cell.result.oversubscribed; })) {
    notes.push_back(
        "oversubscribed: more places than cores; they take each other's time, so it is no fair "
        "test of that many places");
  }
  if (any([](const EpochCell& cell) { return cell.epoch_share() < 1; })) {
    notes.push_back(
        "extrapolated: epochs were cut to that part; the second epoch follows its rate, the first "
        "has besides what its start took longer");
  }
  return notes;
}

Row speed_up_row(const std::vector<EpochCell>& cells, const EpochCell& cell) {
  Row row = coordinates(cell);
  const auto faster = speed_up(cells, cell);
  const auto published = cell.way == "dp" ? published_speed_up(cell) : std::nullopt;
  row.push_back(faster ? ratio_text(faster->median) : kNone);
  row.push_back(faster ? ratio_interval(*faster) : kNone);
  row.push_back(faster ? percent_text(faster->median / cell.places) : kNone);
  row.push_back(published ? ratio_text(*published) : kNone);
  std::string note = note_of(cell);
  const EpochCell* one = sibling(cells, cell, 1, "serial");
  const bool lacks_one = cell.result.reason.empty() && !faster && one != nullptr;
  if (lacks_one) note = concat("one place: ", note_of(*one));
  row.push_back(note);
  return row;
}

std::string both_notes(const std::string& dp, const std::string& ddp) {
  if (dp == kNone) return "ddp: " + ddp;
  return ddp == kNone ? "dp: " + dp : concat("dp: ", dp, "; ddp: ", ddp);
}

Row dp_or_ddp_row(const std::vector<EpochCell>& cells, const EpochCell& dp, const EpochCell& ddp) {
  Row row = coordinates(dp);
  row.pop_back();
  const auto ratio = dp_over_ddp(cells, dp);
  row.push_back(median_seconds(dp.result.estimate(kSecondEpoch)));
  row.push_back(median_seconds(ddp.result.estimate(kSecondEpoch)));
  row.push_back(ratio ? ratio_text(ratio->median) : kNone);
  row.push_back(ratio ? ratio_interval(*ratio) : kNone);
  row.push_back(ratio ? side_of_one(*ratio, "ddp", "dp") : kNone);
  const std::string first = note_of(dp), second = note_of(ddp);
  row.push_back(first == second ? first : both_notes(first, second));
  return row;
}

}  // namespace

std::string note_of(const EpochCell& cell) {
  std::string note = cell_note(cell.result, kSecondEpoch);
  if (cell.epoch_share() >= 1) return note;
  const std::string mark = concat("extrapolated from ", percent_text(cell.epoch_share()));
  return note == kNone ? mark : note + "; " + mark;
}

page::Table epoch_table(const std::vector<EpochCell>& cells) {
  page::Table table{
      .id = "data-parallel-epochs",
      .title = "Seconds an epoch, here and published",
      .columns = columns(
          {"first [s]", "second [s]", "interval [s]", "published first", "published second"}),
      .rows = {},
      .notes = explanations(cells)};
  for (const EpochCell& cell : cells) {
    const bool same_way = cell.way != "ddp";
    const auto* published =
        same_way ? find_published(cell.model, cell.repeat, cell.batch, cell.places) : nullptr;
    const auto second = cell.result.estimate(kSecondEpoch);
    Row row = coordinates(cell);
    row.push_back(median_seconds(cell.result.estimate(kFirstEpoch)));
    row.push_back(median_seconds(second));
    row.push_back(second ? seconds_interval(*second) : kNone);
    row.push_back(published == nullptr ? kNone : seconds_text(published->first_seconds));
    row.push_back(published == nullptr ? kNone : published_seconds(published->second_seconds));
    row.push_back(note_of(cell));
    table.rows.push_back(row);
  }
  table.notes.push_back(concat("interval: of the second epoch; published: ", kPublishedWith));
  std::vector<CellResult> results;
  for (const EpochCell& cell : cells) results.push_back(cell.result);
  for (const std::string& reason : whole_reasons(results)) table.notes.push_back(reason);
  return table;
}

page::Table learning_table(const std::vector<EpochCell>& cells) {
  page::Table table{
      .id = "data-parallel-learning",
      .title = "What was learned in two epochs",
      .columns = columns({"train loss", "test accuracy", "images/s"}),
      .rows = {}};
  const auto text = [](const std::optional<Estimate>& estimate, int digits) {
    return estimate ? cell(estimate->median, digits) : kNone;
  };
  for (const EpochCell& each : cells) {
    Row row = coordinates(each);
    row.push_back(text(each.result.estimate("train_loss"), 4));
    row.push_back(text(each.result.estimate("test_accuracy"), 4));
    row.push_back(text(each.result.estimate("samples_per_s"), 0));
    row.push_back(note_of(each));
    table.rows.push_back(row);
  }
  table.notes.push_back(
      "train loss and images/s are those of the second epoch; where epochs were cut, fewer images "
      "were learned from, and the large net is not tested");
  return table;
}

page::Table speed_up_table(const std::vector<EpochCell>& cells) {
  page::Table table{
      .id = "data-parallel-speed-up",
      .title = "How many times as fast as one place",
      .columns = columns({"speed-up", "interval", "efficiency", "published"}),
      .rows = {}};
  for (const EpochCell& cell : cells) {
    if (cell.places > 1) table.rows.push_back(speed_up_row(cells, cell));
  }
  table.notes.push_back("of the second epoch; efficiency: speed-up / places");
  return table;
}

page::Table dp_or_ddp_table(const std::vector<EpochCell>& cells) {
  page::Table table{
      .id = "data-parallel-dp-or-ddp",
      .title = "DataParallel or DistributedDataParallel",
      .columns =
          {{"model", true},
           {"repeat"},
           {"batch"},
           {"places"},
           {"dp [s]"},
           {"ddp [s]"},
           {"dp / ddp"},
           {"interval"},
           {"quicker", true},
           {"note", true}},
      .rows = {}};
  for (const EpochCell& dp : cells) {
    const EpochCell* ddp = sibling(cells, dp, dp.places, "ddp");
    if (dp.way == "dp" && ddp != nullptr) table.rows.push_back(dp_or_ddp_row(cells, dp, *ddp));
  }
  table.notes.push_back(
      "seconds of the second epoch; one is the quicker where the whole interval lies on its side "
      "of 1");
  return table;
}

}  // namespace lockstep::bench
