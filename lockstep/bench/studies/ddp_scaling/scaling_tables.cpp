#include "lockstep/bench/studies/ddp_scaling/scaling_tables.h"

#include <algorithm>

#include "lockstep/bench/studies/cell_note.h"
#include "lockstep/bench/studies/ddp_scaling/published_times.h"
#include "lockstep/bench/studies/ddp_scaling/scaling_values.h"
#include "lockstep/bench/studies/estimate_text.h"
#include "lockstep/bench/text_table.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

using Row = std::vector<std::string>;

constexpr const char* kNone = "-";

std::vector<page::Column> columns(const std::vector<std::string>& names) {
  std::vector<page::Column> all{{"places"}, {"nodes"}, {"started by", true}};
  for (const std::string& name : names) all.push_back({name});
  all.push_back({"note", true});
  return all;
}

Row coordinates(const ScalingCell& cell) {
  return {std::to_string(cell.places), std::to_string(cell.nodes), cell.launcher()};
}

std::string text_or_none(const std::optional<double>& value, std::string (*text)(double)) {
  return value ? text(*value) : kNone;
}

std::string median_or_none(const std::optional<Estimate>& estimate, std::string (*text)(double)) {
  return estimate ? text(estimate->median) : kNone;
}

std::optional<double> published(const ScalingCell& cell) {
  return published_run_seconds(cell.nodes, cell.places, cell.started_by);
}

// Why a column of this cell's row has no number.
std::string with_what_lacks(
    std::string note, const std::vector<ScalingCell>& cells, const ScalingCell& cell) {
  const auto add = [&](const std::string& part) {
    note = note == kNone ? part : concat(note, "; ", part);
  };
  if (!published(cell)) add("not in the study");
  if (cell.places == 1) add("what the others are measured by");
  if (cell.link == "real") add("link's rate not known: no prediction");
  const bool unpredicted = cell.places > 1 && cell.link != "real";
  if (unpredicted && !predicted_run_seconds(cells, cell)) add("one place has no number");
  const auto run = cell.result.estimate(kRunSeconds);
  if (run && run->count < 2) add("one round: no interval");
  return note;
}

std::string link_note(const std::vector<ScalingCell>& cells) {
  for (const ScalingCell& cell : cells) {
    if (cell.nodes > 1 && cell.link != "real") {
      return concat(
          "nodes: hosts made within this machine, each with a link of ", cell.link,
          " each way; the study does not say what its network was");
    }
  }
  return "nodes: the real hosts that were named";
}

std::vector<std::string> notes_of(const std::vector<ScalingCell>& cells) {
  std::vector<std::string> notes{
      concat("published: ", kScalingPublishedWith),
      "published beside lockstep run: PyTorch's older launcher, torch.distributed.launch",
      "predicted: one place's time here / places, and with several nodes the gradients of all "
      "steps over the link besides, 2 (n - 1) / n x 44.9 MB a step for n places, hidden behind "
      "nothing: DDP hides a part behind the backward pass, so it can be faster",
      link_note(cells)};
  const auto any = [&](auto&& holds) { return std::any_of(cells.begin(), cells.end(), holds); };
  if (any([](const ScalingCell& cell) { return cell.result.oversubscribed; })) {
    notes.push_back(
        "oversubscribed: more places than cores; they take each other's time, so it is no fair "
        "test of that many places, and the prediction does not hold for it");
  }
  if (any([](const ScalingCell& cell) { return cell.epoch_share() < 1; })) {
    notes.push_back(
        "extrapolated: two epochs cut to that part; ten whole ones follow the second one's rate, "
        "and the first's longer start");
  }
  if (any([](const ScalingCell& cell) { return cell.pixels < kStudyPixels; })) {
    notes.push_back(concat(
        "images of ", cells.front().pixels, " x ", cells.front().pixels,
        " pixels in place of the study's ", kStudyPixels,
        ": less computing for the same gradients, so a network weighs more"));
  }
  return notes;
}

void add_reasons(page::Table& table, const std::vector<ScalingCell>& cells) {
  std::vector<CellResult> results;
  for (const ScalingCell& cell : cells) results.push_back(cell.result);
  for (const std::string& reason : whole_reasons(results)) table.notes.push_back(reason);
}

std::optional<double> predicted_speed_up(
    const std::vector<ScalingCell>& cells, const ScalingCell& cell) {
  const auto predicted = predicted_run_seconds(cells, cell);
  const ScalingCell* one = scaling_cell_of(cells, 1, 1, "train");
  if (!predicted || one == nullptr) return std::nullopt;
  const auto alone = one->result.estimate(kRunSeconds);
  return alone ? std::optional(alone->median / *predicted) : std::nullopt;
}

// The processes' start and end: all but the training.
std::optional<double> seconds_besides(const ScalingCell& cell) {
  std::vector<double> besides;
  for (const Sample& sample : cell.result.samples) {
    const auto trained = sample.values.find("trained_seconds");
    if (sample.worked() && trained != sample.values.end()) {
      besides.push_back(sample.seconds - trained->second);
    }
  }
  return besides.empty() ? std::nullopt : std::optional(median(besides));
}

}  // namespace

std::string scaling_note(const ScalingCell& cell) {
  const std::string note = cell_note(cell.result, kRunSeconds);
  if (cell.epoch_share() >= 1) return note;
  const std::string mark = concat("extrapolated from ", percent_text(cell.epoch_share()));
  return note == kNone ? mark : note + "; " + mark;
}

page::Table run_time_table(const std::vector<ScalingCell>& cells) {
  page::Table table{
      .id = "ddp-scaling-run-times",
      .title = "Seconds of ten epochs",
      .columns = columns({"published [s]", "here [s]", "interval [s]", "predicted [s]"}),
      .rows = {},
      .notes = notes_of(cells)};
  for (const ScalingCell& cell : cells) {
    const auto run = cell.result.estimate(kRunSeconds);
    Row row = coordinates(cell);
    row.push_back(text_or_none(published(cell), seconds_text));
    row.push_back(median_or_none(run, seconds_text));
    row.push_back(run ? seconds_interval(*run) : kNone);
    row.push_back(text_or_none(predicted_run_seconds(cells, cell), seconds_text));
    row.push_back(with_what_lacks(scaling_note(cell), cells, cell));
    table.rows.push_back(row);
  }
  add_reasons(table, cells);
  return table;
}

page::Table scaling_speed_up_table(const std::vector<ScalingCell>& cells) {
  page::Table table{
      .id = "ddp-scaling-speed-up",
      .title = "How many times as fast as one place",
      .columns = columns({"published", "here", "interval", "predicted", "efficiency"}),
      .rows = {},
      .notes = {"of ten epochs; efficiency: speed-up here / places"}};
  for (const ScalingCell& cell : cells) {
    if (cell.places == 1) continue;
    const auto faster = scaling_speed_up(cells, cell);
    Row row = coordinates(cell);
    row.push_back(text_or_none(published_scaling(cell), ratio_text));
    row.push_back(median_or_none(faster, ratio_text));
    row.push_back(faster ? ratio_interval(*faster) : kNone);
    row.push_back(text_or_none(predicted_speed_up(cells, cell), ratio_text));
    row.push_back(faster ? percent_text(faster->median / cell.places) : kNone);
    row.push_back(with_what_lacks(scaling_note(cell), cells, cell));
    table.rows.push_back(row);
  }
  return table;
}

page::Table scaling_epoch_table(const std::vector<ScalingCell>& cells) {
  page::Table table{
      .id = "ddp-scaling-epochs",
      .title = "Epochs, and what is besides them",
      .columns =
          columns({"first epoch [s]", "later epoch [s]", "images/s", "train loss", "besides [s]"}),
      .rows = {},
      .notes = {
          "besides: start and end of all processes, which the times of epochs do not hold; that "
          "of torchrun is Python's and PyTorch's for the most part; train loss: of the last "
          "epoch"}};
  for (const ScalingCell& cell : cells) {
    const auto loss = cell.result.estimate("train_loss");
    const auto rate = cell.result.estimate("samples_per_s");
    Row row = coordinates(cell);
    row.push_back(median_or_none(cell.result.estimate("first_epoch_seconds"), seconds_text));
    row.push_back(median_or_none(cell.result.estimate(kLaterEpoch), seconds_text));
    row.push_back(rate ? bench::cell(rate->median, 0) : kNone);
    row.push_back(loss ? bench::cell(loss->median, 3) : kNone);
    row.push_back(text_or_none(seconds_besides(cell), seconds_text));
    row.push_back(scaling_note(cell));
    table.rows.push_back(row);
  }
  return table;
}

}  // namespace lockstep::bench
