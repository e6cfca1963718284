#include <algorithm>
#include <cmath>

#include "bench/studies/throughput/study.h"
#include "bench/study/predicted_step.h"
#include "bench/study/table_of.h"
#include "bench/study/verdict.h"
#include "lockstep/core/error.h"

namespace lockstep::bench::throughput {
namespace {

using Change = Ratio::Change;

constexpr const char* kPublishedWith =
    "Python PyTorch's DataParallel and apex on four NVIDIA Tesla V100s, batches of 128 and 512, "
    "5000 steps";

// What the study's notebook printed: seconds, rounded to a microsecond, and their ratios.
constexpr double kPublishedSerial = 0.003333;
constexpr double kPublishedSameBatch = 0.003343;
constexpr double kPublishedLargeBatch = 0.001232;
constexpr double kPublishedHalf = 0.000990;

double published_ratio(Change change) {
  if (change == Change::kPlaces) return 0.997;
  return change == Change::kPlacesAndBatch ? 2.70 : 1.24;
}

// The other side of a cell's ratio; nullptr: it is not the denominator of any.
const Cell* base_of(const Cells& cells, const Cell& cell) {
  if (cell.way == "serial") return nullptr;
  if (!cell.is_half()) return one_place(cells, cell.image_size);
  Cell in_float32 = cell;
  in_float32.precision = "32";
  return other_way(cells, in_float32, cell.way);
}

Change change_of(const Cell& base, const Cell& cell) {
  if (cell.is_half()) return Change::kPrecision;
  return base.batch == cell.batch ? Change::kPlaces : Change::kPlacesAndBatch;
}

Ratio ratio_between(const Cell& base, const Cell& cell) {
  Ratio ratio{.change = change_of(base, cell),
      .base = &base,
      .cell = &cell,
      .measured = ratio_of(&base, &cell, kSecondsASample),
      .predicted = {},
      .published = {}};
  if (!cell.is_half())
    ratio.predicted = static_cast<double>(cell.result.cell.cores) / base.result.cell.cores;
  if (cell.way == "dp") ratio.published = published_ratio(ratio.change);
  return ratio;
}

std::optional<Estimate> seconds_of(const Cell& cell) { return cell.estimate(kSecondsASample); }

std::string note_of(const Cell& cell) {
  const auto seconds = seconds_of(cell);
  const auto skipped = std::lround(cell.median("skipped_steps").value_or(0));
  return noted(
      {cell_note(cell.result, kSecondsASample), seconds && seconds->count < 2 ? "one round" : "",
          skipped > 0 ? concat("overflow left out ", skipped, " of ", cell.steps, " steps") : ""});
}

std::string why_not_predicted(const Cells& cells, const Cell& cell) {
  if (cell.way == "serial") return "the others are predicted from it";
  if (cell.is_half()) return "no prediction";
  if (one_place(cells, cell.image_size) == nullptr) return "not measured on one place";
  return predicted_seconds(cells, cell) ? "" : "one place has no number";
}

std::string why_not_published(const Cell& cell) {
  if (cell.way == "ddp") return "the study has no ddp";
  return cell.has_study_size() ? "" : "the study has no such images";
}

// What the study had and these cells have not.
std::string cuts(const Cells& cells) {
  if (cells.empty()) return "";
  int steps = cells.front().steps, least = steps;
  for (const Cell& cell : cells) least = std::min(least, cell.steps);
  const std::string range = least == steps ? concat(steps) : concat(least, " to ", steps);
  return concat("here ", range, " steps, the first not timed, and batches from ",
      cells.front().batch, " images on; the study's: 5000 steps, 128 and 512 images");
}

TableOf<Cell>& with_coordinates(TableOf<Cell>& table) {
  return table.number("places", &Cell::places)
      .number("batch", &Cell::batch)
      .number("a place", &Cell::batch_a_place)
      .name("precision", &Cell::precision)
      .number("image [px]", &Cell::image_size);
}

page::Table cost_table(const Cells& cells) {
  TableOf<Cell> table(
      "throughput-samples-cost", "Milliseconds a sample: here, predicted, published");
  table.name("way", &Cell::way);
  return with_coordinates(table)
      .estimate("here [ms]", "interval [ms]", seconds_of, milliseconds_text)
      .number(
          "predicted [ms]", [&](const Cell& cell) { return predicted_seconds(cells, cell); },
          milliseconds_text)
      .number(
          "published [ms]", [&](const Cell& cell) { return published_seconds(cells, cell); },
          milliseconds_text)
      .name("note",
          [&](const Cell& cell) {
            return noted({note_of(cell), why_not_predicted(cells, cell), why_not_published(cell)});
          })
      .notes(
          {"batch: images a step on all places; medians over the rounds, intervals as explained in "
           "the conclusion",
              concat(
                  "predicted: one place's time, divided by how many times its cores the cell has: "
                  "linear scaling; for half precision there is no prediction; published: ",
                  kPublishedWith),
              cuts(cells), oversubscribed_note(any_oversubscribed(cells))})
      .notes(whole_reasons(results_of(cells)))
      .of(cells);
}

std::string ratio_note(const Ratio& ratio) {
  const bool measured = ratio.measured.has_value();
  return noted(
      {measured ? note_of(*ratio.cell) : concat("above: ", cell_text(note_of(*ratio.base))),
          measured ? "" : concat("below: ", cell_text(note_of(*ratio.cell))),
          ratio.published ? "" : "the study has no ddp", ratio.predicted ? "" : "no prediction"});
}

std::string meaning(const Ratio& ratio) {
  if (!ratio.measured) return kNone;
  const Verdict verdict{.ratios = {*ratio.measured}};
  return side_of_one(*ratio.measured, verdict.sure("faster"), verdict.sure("slower"));
}

page::Table ratio_table(const Cells& cells) {
  return TableOf<Ratio>("throughput-ratios", "How many times as fast: the study's ratios")
      .name("seconds a sample of", &Ratio::name)
      .estimate("here", "interval", &Ratio::measured, ratio_text)
      .number("predicted", &Ratio::predicted, ratio_text)
      .number("published", &Ratio::published)  // 0.997 is not 1.00
      .name("means", meaning)
      .name("note", ratio_note)
      .notes(
          {"above 1: the one after the slash is faster; predicted: by the number of cores compared "
           "with one place, none for half precision; published for float16: also shown next to "
           "bfloat16, which the study's GPUs lack"})
      .of(ratios(cells));
}

page::Table way_table(const Cells& cells) {
  const auto ddp = [&](const Cell& dp) { return other_way(cells, dp, "ddp"); };
  const auto ratio = [&](const Cell& dp) { return dp_over_ddp(cells, dp); };
  const auto faster = [&](const Cell& dp) -> std::string {
    const auto found = dp_over_ddp(cells, dp);
    return found ? side_of_one(*found, "ddp", "dp") : kNone;
  };
  TableOf<Cell> table("throughput-dp-or-ddp", "DataParallel or DistributedDataParallel");
  return with_coordinates(table)
      .number("dp [ms]", seconds_of, milliseconds_text)
      .number(
          "ddp [ms]", [&](const Cell& dp) { return seconds_of(*ddp(dp)); }, milliseconds_text)
      .estimate("dp / ddp", "interval", ratio, ratio_text)
      .name("faster", faster)
      .name("note", [&](const Cell& dp) { return note_of_both(note_of(dp), note_of(*ddp(dp))); })
      .notes(
          {"milliseconds a sample; one is faster where the whole interval lies on its side of 1"})
      .of(select(cells, [&](const Cell& dp) { return dp.way == "dp" && ddp(dp) != nullptr; }));
}

}  // namespace

const Cell* one_place(const Cells& cells, int image_size) {
  return first_where(cells,
      [&](const Cell& each) { return each.way == "serial" && each.image_size == image_size; });
}

const Cell* other_way(const Cells& cells, const Cell& cell, const std::string& way) {
  return first_where(cells, [&](const Cell& each) {
    return each.way == way && each.places == cell.places && each.batch == cell.batch &&
           each.precision == cell.precision && each.image_size == cell.image_size;
  });
}

std::optional<double> predicted_seconds(const Cells& cells, const Cell& cell) {
  const Cell* one = one_place(cells, cell.image_size);
  if (one == nullptr || cell.is_half() || cell.way == "serial") return std::nullopt;
  const auto seconds = one->median(kSecondsASample);
  if (!seconds) return std::nullopt;
  // A place has as many cores in every cell.
  const auto places = static_cast<int>(cell.result.cell.cores / one->result.cell.cores);
  const plan::WholeStep step{
      .batch = static_cast<double>(one->batch), .seconds = *seconds * one->batch};
  const plan::Way way{.replicas = places,
      .replication =
          cell.way == "dp" ? plan::Replication::kThreads : plan::Replication::kProcesses};
  return predicted_step(step, {.places = places}, way, cell.batch) / cell.batch;
}

std::optional<double> published_seconds(const Cells& cells, const Cell& cell) {
  const Cell* one = one_place(cells, kStudyImageSize);
  if (one == nullptr || !cell.has_study_size() || cell.way == "ddp") return std::nullopt;
  if (cell.way == "serial") return kPublishedSerial;
  if (cell.is_half()) return kPublishedHalf;
  return cell.batch == one->batch ? kPublishedSameBatch : kPublishedLargeBatch;
}

std::string Ratio::name() const {
  std::string text =
      cell->is_half() ? concat(cell->way, " in float32 / ", cell->precision)
                      : concat("one place / ", cell->way, ", ", kBatchFactor, " times the batch");
  if (change == Change::kPlaces) text = concat("one place / ", cell->way, ", same batch");
  return cell->has_study_size() ? text : concat(text, ", ", cell->image_size, " px");
}

std::vector<Ratio> ratios(const Cells& cells) {
  std::vector<Ratio> all;
  for (const Cell& cell : cells) {
    if (const Cell* base = base_of(cells, cell)) all.push_back(ratio_between(*base, cell));
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& one, const auto& other) {
    return (one.cell->way == "dp") > (other.cell->way == "dp");
  });
  return all;
}

std::optional<Estimate> dp_over_ddp(const Cells& cells, const Cell& cell) {
  return ratio_of(other_way(cells, cell, "dp"), other_way(cells, cell, "ddp"), kSecondsASample);
}

std::vector<page::Table> tables(const Cells& cells) {
  return {cost_table(cells), ratio_table(cells), way_table(cells)};
}

}  // namespace lockstep::bench::throughput
