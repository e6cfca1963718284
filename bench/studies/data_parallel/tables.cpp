#include "bench/studies/data_parallel/study.h"
#include "bench/study/table_of.h"
#include "bench/study/verdict.h"

namespace lockstep::bench::data_parallel {
namespace {

constexpr const char* kPublishedWith =
    "Python PyTorch's DataParallel on NVIDIA Tesla K80s, 2 virtual CPUs, MNIST";

std::string note_of(const Cell& cell) {
  return noted({cell_note(cell.result, kSecondEpoch), extrapolated_note(epoch_share(cell.result))});
}

auto value(const char* name) {
  return [name](const Cell& cell) { return cell.estimate(name); };
}

TableOf<Cell> table_of(const char* what, const char* title) {
  TableOf<Cell> table(std::string("data-parallel-") + what, title);
  return table.name("model", &Cell::model)
      .number("repeat", &Cell::repeat)
      .number("batch", &Cell::batch)
      .number("places", &Cell::places)
      .name("way", &Cell::way);
}

std::optional<double> published(const Cell& cell, bool second) {
  const auto* found = cell.way == "ddp"
                          ? nullptr
                          : find_published(cell.model, cell.repeat, cell.batch, cell.places);
  if (found == nullptr) return std::nullopt;
  return second ? found->second_seconds : found->first_seconds;
}

page::Table epoch_table(const Cells& cells) {
  return table_of("epochs", "Seconds an epoch, here and published")
      .number("first [s]", value(kFirstEpoch))
      .estimate("second [s]", "interval [s]", value(kSecondEpoch))
      .number("published first", [](const Cell& cell) { return published(cell, false); })
      .number("published second", [](const Cell& cell) { return published(cell, true); })
      .name("note", note_of)
      .notes({"batch is that of each place; medians over the rounds, intervals as explained in the "
              "conclusion",
          oversubscribed_note(any_oversubscribed(cells)),
          least_epoch_share(cells) < 1 ? "extrapolated: epochs were cut to that part; the second "
                                         "epoch follows its rate, the first also has what its "
                                         "start took longer"
                                       : "",
          std::string("interval: of the second epoch; published: ") + kPublishedWith})
      .notes(whole_reasons(results_of(cells)))
      .of(cells);
}

page::Table speed_up_table(const Cells& cells) {
  const auto faster = [&](const Cell& cell) { return speed_up(cells, cell); };
  const auto efficiency = [&](const Cell& cell) {
    const auto found = speed_up(cells, cell);
    return found ? std::optional(found->median / cell.places) : std::nullopt;
  };
  const auto note = [&](const Cell& cell) {
    const Cell* one = sibling(cells, cell, 1, "serial");
    const bool lacks_one = cell.result.reason.empty() && !speed_up(cells, cell) && one != nullptr;
    return lacks_one ? "one place: " + note_of(*one) : note_of(cell);
  };
  return table_of("speed-up", "How many times as fast as one place")
      .estimate("speed-up", "interval", faster, ratio_text)
      .number("efficiency", efficiency, percent_text)
      .number("published", published_speed_up, ratio_text)
      .name("note", note)
      .notes({"of the second epoch; efficiency: speed-up / places"})
      .of(select(cells, [](const Cell& cell) { return cell.places > 1; }));
}

page::Table choice_table(const Cells& cells) {
  const auto ddp = [&](const Cell& dp) { return sibling(cells, dp, dp.places, "ddp"); };
  const auto ratio = [&](const Cell& dp) { return dp_over_ddp(cells, dp); };
  const auto faster = [&](const Cell& dp) -> std::string {
    const auto found = dp_over_ddp(cells, dp);
    return found ? side_of_one(*found, "ddp", "dp") : kNone;
  };
  return TableOf<Cell>("data-parallel-dp-or-ddp", "DataParallel or DistributedDataParallel")
      .name("model", &Cell::model)
      .number("repeat", &Cell::repeat)
      .number("batch", &Cell::batch)
      .number("places", &Cell::places)
      .number("dp [s]", value(kSecondEpoch))
      .number("ddp [s]", [&](const Cell& dp) { return ddp(dp)->estimate(kSecondEpoch); })
      .estimate("dp / ddp", "interval", ratio, ratio_text)
      .name("faster", faster)
      .name("note", [&](const Cell& dp) { return note_of_both(note_of(dp), note_of(*ddp(dp))); })
      .notes(
          {"seconds of the second epoch; one is faster where the whole interval lies on its side "
           "of 1"})
      .of(select(cells, [&](const Cell& dp) { return dp.way == "dp" && ddp(dp) != nullptr; }));
}

page::Table learning_table(const Cells& cells) {
  return table_of("learning", "What was learned in two epochs")
      .number("train loss", value("train_loss"), decimals<4>)
      .number("test accuracy", value("test_accuracy"), decimals<4>)
      .number("images/s", value("samples_per_s"), decimals<0>)
      .name("note", note_of)
      .notes({"train loss and images/s are those of the second epoch; where epochs were cut, fewer "
              "images were learned from, and the large net is not tested"})
      .of(cells);
}

}  // namespace

std::vector<page::Table> tables(const Cells& cells) {
  return {epoch_table(cells), speed_up_table(cells), choice_table(cells), learning_table(cells)};
}

}  // namespace lockstep::bench::data_parallel
