#include <algorithm>

#include "bench/studies/ways/study.h"
#include "bench/study/figure_of.h"
#include "bench/study/table_of.h"
#include "lockstep/core/error.h"

namespace lockstep::bench::ways {
namespace {

std::string mebibytes_of(double bytes) { return decimals<0>(bytes / (1 << 20)); }

auto value_of(const char* name) {
  return [name](const Cell& cell) { return cell.estimate(name); };
}

int rounds_of(const Cell& cell) {
  const auto rate = cell.estimate(kRate);
  return rate ? rate->count : 0;
}

std::string note_of(const Cells& cells, const Cell& cell) {
  const bool is_base = serial_of(cells, cell) == &cell && cell.result.reason.empty();
  return noted({cell_note(cell.result, kRate), is_base ? "the others are compared with it" : ""});
}

std::string base_note(const Cells& cells) {
  const bool on_cores = cells.empty() || cells.front().result.cell.on_cores;
  return concat(
      "speed-up: over one process with the fewest cores, of the same batch and precision; "
      "efficiency: speed-up by how many times its ",
      on_cores ? "cores" : "devices", " the cell has");
}

TableOf<Cell> table_of(const char* what, const char* title) {
  TableOf<Cell> table(std::string("ways-") + what, title);
  return table.name("way", &Cell::name)
      .number("cores", &Cell::cores)
      .number("batch", &Cell::batch)
      .name("precision", &Cell::precision);
}

page::Table rate_table(const Cells& cells) {
  return table_of("rates", "Images a second")
      .estimate("images/s", "interval", value_of(kRate), seconds_text)
      .number("rounds", rounds_of)
      .estimate(
          "speed-up", "interval", [&](const Cell& cell) { return speed_up(cells, cell); },
          ratio_text)
      .number(
          "efficiency", [&](const Cell& cell) { return efficiency(cells, cell); }, percent_text)
      .name("note", [&](const Cell& cell) { return note_of(cells, cell); })
      .notes({"batch is that of all places together, so that all ways train alike; one place is "
              "serial, dp, ddp, mp and pp begin at two, ddp+mp and ddp+pp at four",
          base_note(cells), oversubscribed_note(any_oversubscribed(cells))})
      .notes(whole_reasons(results_of(cells)))
      .of(cells);
}

page::Table cost_table(const Cells& cells) {
  return table_of("costs", "What steps waited for, and memory")
      .number("waited for data", value_of(kDataShare), percent_text)
      .number("for ranks", value_of(kCommShare), percent_text)
      .number("peak [MiB]", value_of(kPeakMemory), mebibytes_of)
      .name("note", [](const Cell& cell) { return cell_note(cell.result, kRate); })
      .notes({"shares of the time of a step; only ddp records how long backward waited for other "
              "ranks; peak: memory of all processes, summed"})
      .of(cells);
}

template <class Coordinate>
bool has_several(const Cells& cells, Coordinate coordinate) {
  return std::any_of(cells.begin(), cells.end(),
      [&](const Cell& cell) { return cell.*coordinate != cells.front().*coordinate; });
}

}  // namespace

std::string label(const Cells& cells, const Cell& cell) {
  return concat(cell.name(), has_several(cells, &Cell::batch) ? concat(", batch ", cell.batch) : "",
      has_several(cells, &Cell::precision) ? ", precision " + cell.precision : "");
}

std::vector<page::Table> tables(const Cells& cells) {
  return {rate_table(cells), cost_table(cells)};
}

std::vector<plot::Figure> figures(const Cells& cells) {
  const auto category = [&](const Cell& cell) {
    return concat(label(cells, cell), cell.result.oversubscribed ? " (oversubscribed)" : "");
  };
  const auto shown = select(cells, [](const Cell& cell) { return cell.result.reason.empty(); });
  if (shown.empty()) return {};
  return {BarsOf<Cell>("ways-rate", "Images a second, each way", "way", "images/s", category)
              .bars("images/s", value_of(kRate))
              .of(shown, medians_note(most_rounds(cells, kRate)))};
}

}  // namespace lockstep::bench::ways
