#include <cmath>

#include "bench/statistics/estimate_text.h"
#include "bench/studies/collectives/study.h"
#include "bench/study/verdict.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::bench::collectives {
namespace {

using Panels = std::vector<Panel>;
using Sizes = std::vector<std::int64_t>;

/// The speed of a way as a multiple of Gloo's, by size.
struct AgainstGloo {
  Sizes sizes;
  Verdict verdict;

  Sizes sizes_where(bool (*holds)(const std::optional<Estimate>&)) const {
    Sizes found;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (holds(verdict.ratios[i])) found.push_back(sizes[i]);
    }
    return found;
  }
};

AgainstGloo against_gloo(const Panel& panel, const std::string& way) {
  AgainstGloo result;
  for (const std::int64_t bytes : panel.sizes) {
    const auto ratio = panel.gloo_over(way, bytes);
    if (ratio) result.sizes.push_back(bytes);
    result.verdict.add(ratio);
  }
  return result;
}

// `faster in every round at 1 (4 KiB)`
std::string sizes_text(const std::string& what, const Sizes& sizes, const std::string& of_all) {
  std::vector<std::string> list;
  for (const std::int64_t bytes : sizes) list.push_back(size_text(bytes));
  return concat(", ", what, " at ", sizes.size(), of_all,
      sizes.empty() ? "" : concat(" (", joined(list), ")"));
}

// Where it is not significantly faster, sizes are named; they are few or the point.
std::string verdict_by_size(const AgainstGloo& against) {
  const Verdict& verdict = against.verdict;
  if (!verdict.has_intervals()) return "";
  const Sizes faster = against.sizes_where(above_one), slower = against.sizes_where(below_one);
  const std::string of_all = concat(" of ", against.sizes.size(), " sizes");
  if (faster.size() == against.sizes.size())
    return concat(", ", verdict.sure("faster"), " at ", faster.size(), of_all);
  return sizes_text(verdict.sure("faster"), faster, of_all) +
         sizes_text(verdict.sure("slower"), slower, "");
}

// Empty for a way that cannot be compared.
std::string way_text(const Panel& panel, const Way& way) {
  const AgainstGloo against = against_gloo(panel, way.name);
  if (against.sizes.empty()) return "";
  return concat(panel.name(), ": ", way.title, " is ", range_text(against.verdict.ratios),
      " times as fast as Gloo", verdict_by_size(against), ".");
}

// The ends of the sweep: latency, and what is left of the rate of a copy.
std::string ends_text(const Panel& panel) {
  const std::int64_t small = panel.sizes.front(), large = panel.sizes.back();
  const auto first = panel.seconds("shm", small), gloo_first = panel.seconds(kGloo, small);
  const auto last = panel.seconds("shm", large), gloo_last = panel.seconds(kGloo, large);
  if (!first || !gloo_first || !last || !gloo_last) return "";
  const auto rate = [&](const Estimate& seconds) {
    return seconds_text(panel.bus_gigabytes(large) / seconds.median);
  };
  const auto microseconds = [](const Estimate& seconds) {
    return seconds_text(seconds.median * 1e6);
  };
  const auto predicted = panel.predicted_seconds(large);
  return concat(panel.name(), ": ", size_text(small), " takes shm ", microseconds(*first),
      " µs and Gloo ", microseconds(*gloo_first), " µs; ", size_text(large),
      " goes at a bus bandwidth of ", rate(*last), " and ", rate(*gloo_last), " GB/s",
      predicted ? concat(", shm in ", ratio_text(last->median / *predicted),
                      " times what a copy predicts")
                : "",
      ".");
}

bool is_fair(const Panel& panel) {
  const auto has_number = [&](const Way& way) {
    return way.name != kGloo && !against_gloo(panel, way.name).sizes.empty();
  };
  return !panel.oversubscribed() && first_where(ways(), has_number) != nullptr;
}

std::string how_sure(const Panels& panels) {
  Verdict all;
  for (const Panel& panel : panels) {
    if (!is_fair(panel)) continue;
    for (const Way& way : ways()) {
      for (const Estimate& ratio : against_gloo(panel, way.name).verdict.ratios) all.add(ratio);
    }
  }
  return all.explained();
}

std::string about_ranks(const Cells& cells) {
  const int least = least_oversubscribed(cells, &Cell::ranks);
  return least == 0 ? "" : about_oversubscribed(concat(least, " ranks"));
}

// Ranks that wait poll, and lose most where others take their cores.
std::string about_load(const Cells& cells) {
  constexpr double kQuiet = 0.1;
  std::vector<double> shares;
  for (const Cell& cell : cells) {
    for (const Sample& sample : cell.result.samples) {
      if (sample.worked() && std::isfinite(sample.other_share))
        shares.push_back(sample.other_share);
    }
  }
  if (shares.empty() || median(shares) < kQuiet) return "";
  return concat("Others used ", percent_text(median(shares)),
      " of the cores meanwhile (median), which affects these times more than the ways do: measure "
      "again on a quiet machine.");
}

}  // namespace

page::Conclusion conclusion(const Cells& cells) {
  const Panels panels = panels_of(cells);
  std::vector<std::string> answers, remarks;
  for (const Panel& panel : panels) {
    if (!is_fair(panel)) continue;
    for (const Way& way : ways()) {
      if (way.name == kGloo || panel.way(way.name) == nullptr) continue;
      (way.name == "shm" ? answers : remarks).push_back(way_text(panel, way));
    }
    remarks.push_back(ends_text(panel));
  }
  const std::string answer = in_one(answers);
  for (const auto& remark :
      {how_sure(panels), about_load(cells), about_ranks(cells), about_missing(results_of(cells))}) {
    remarks.push_back(remark);
  }
  remarks.emplace_back(
      "No figures of collectives were published by the studies, so ours stand beside Gloo's.");
  return {
      .answer =
          answer.empty()
              ? "No collective whose ranks had cores of their own has numbers of Gloo and of shm."
              : answer,
      .remarks = said(remarks)};
}

}  // namespace lockstep::bench::collectives
