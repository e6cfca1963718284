// Which cell is the fastest, which are its equals, and which of them is worth taking.

#include <algorithm>
#include <iterator>
#include <tuple>

#include "bench/studies/ways/study.h"
#include "bench/study/contenders.h"
#include "bench/study/verdict.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::bench::ways {
namespace {

// Whoever runs a training has less to start and to understand with an earlier one.
constexpr const char* kFromSimple[] = {"serial", "dp", "ddp", "mp", "pp", "ddp+mp", "ddp+pp"};

std::ptrdiff_t complexity(const Cell& cell) {
  return std::find(std::begin(kFromSimple), std::end(kFromSimple), cell.way) - kFromSimple;
}

bool is_mixed(const Cell& cell) { return cell.precision != "32"; }

// What decides among equals, in this order.
auto costs(const Cell& cell) {
  return std::make_tuple(cell.cores, complexity(cell), is_mixed(cell));
}

std::string advantage(const Cell& taken, const Cell& first) {
  if (taken.cores < first.cores)
    return taken.result.cell.on_cores ? "it takes fewer cores" : "it takes fewer devices";
  if (complexity(taken) == complexity(first)) return "it needs no mixed precision";
  if (taken.way == "serial") return "it needs no spreading";
  return taken.way == "dp" ? "it is one process" : "it is the simpler way";
}

}  // namespace

Best best_of(const Cells& cells) {
  const auto results = results_of(cells);
  const auto first = largest(results, kRate);
  if (!first) return {};
  Best best{.first = &cells[*first], .taken = &cells[*first]};
  if (const auto second = largest(results, kRate, first)) best.second = &cells[*second];
  for (const Cell& cell : cells) {
    const bool is_other = cell.is_fair() && &cell != best.first;
    if (is_other && surely_equal(ratio_of(best.first, &cell, kRate))) best.equals.push_back(&cell);
  }
  for (const Cell* cell : best.equals)
    if (costs(*cell) < costs(*best.taken)) best.taken = cell;
  return best;
}

std::string equals_text(const Cells& cells, const Best& best) {
  if (best.equals.empty()) return "";
  std::vector<std::string> names;
  for (const Cell* cell : best.equals) names.push_back(label(cells, *cell));
  const std::string advice = best.taken == best.first
                                 ? "None of them is simpler: take the fastest."
                                 : concat("Take ", label(cells, *best.taken), ": ",
                                       advantage(*best.taken, *best.first), ".");
  return concat("Practically as fast (", equal_text(), "): ", joined(names, "; "), ". ", advice);
}

}  // namespace lockstep::bench::ways
