#include "lockstep/bench/studies/collectives/collective_conclusion.h"

#include <algorithm>
#include <cmath>

#include "lockstep/bench/studies/conclusion_text.h"
#include "lockstep/bench/studies/estimate_text.h"
#include "lockstep/bench/studies/sureness.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

constexpr double kMicro = 1e6;
constexpr double kGiga = 1e-9;

/// Is how many times as fast as Gloo a way is, by size.
struct AgainstGloo {
  std::vector<std::int64_t> sizes;
  std::vector<Estimate> ratios;

  std::vector<std::int64_t> sizes_where(bool (*holds)(const std::optional<Estimate>&)) const {
    std::vector<std::int64_t> found;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (holds(ratios[i])) found.push_back(sizes[i]);
    }
    return found;
  }
};

AgainstGloo against_gloo(const CollectivePanel& panel, const std::string& way) {
  AgainstGloo result;
  for (const std::int64_t bytes : panel.sizes) {
    const auto ratio = panel.gloo_over(way, bytes);
    if (!ratio) continue;
    result.sizes.push_back(bytes);
    result.ratios.push_back(*ratio);
  }
  return result;
}

std::string list_text(const std::vector<std::int64_t>& sizes) {
  std::string text;
  for (const std::int64_t bytes : sizes) text += (text.empty() ? "" : ", ") + size_text(bytes);
  return text;
}

// Where it is not told to be the faster, sizes are named; they are few or the point.
std::string told_by_size(const AgainstGloo& against) {
  const auto faster = against.sizes_where(above_one);
  const auto slower = against.sizes_where(below_one);
  const std::size_t all = against.sizes.size();
  if (!has_intervals(against.ratios)) return "";
  std::string text =
      concat(", ", sure(against.ratios, "faster"), " at ", faster.size(), " of ", all, " sizes");
  if (faster.size() == all) return text;
  if (!faster.empty()) text += concat(" (", list_text(faster), ")");
  text += concat(", ", sure(against.ratios, "slower"), " at ", slower.size());
  if (!slower.empty()) text += concat(" (", list_text(slower), ")");
  return text;
}

// Nothing for a way that cannot be compared.
std::string way_text(const CollectivePanel& panel, const CollectiveWay& way) {
  const AgainstGloo against = against_gloo(panel, way.name);
  if (against.sizes.empty()) return "";
  return concat(
      panel.name(), ": ", way.title, " is ", range_text(against.ratios), " times as fast as Gloo",
      told_by_size(against), ".");
}

// The ends of the sweep: latency, and what is left of the rate of a copy.
std::string ends_text(const CollectivePanel& panel) {
  const std::int64_t small = panel.sizes.front(), large = panel.sizes.back();
  const auto first = panel.seconds("shm", small), gloo_first = panel.seconds(kGloo, small);
  const auto last = panel.seconds("shm", large), gloo_last = panel.seconds(kGloo, large);
  if (!first || !gloo_first || !last || !gloo_last) return "";
  const auto rate = [&](const Estimate& seconds) {
    return seconds_text(
        static_cast<double>(large) / seconds.median * kGiga *
        bus_factor(panel.collective, panel.ranks));
  };
  std::string text = concat(
      panel.name(), ": ", size_text(small), " takes shm ", seconds_text(first->median * kMicro),
      " µs and Gloo ", seconds_text(gloo_first->median * kMicro), " µs; ", size_text(large),
      " goes at a bus bandwidth of ", rate(*last), " and ", rate(*gloo_last), " GB/s");
  const auto predicted = panel.predicted_seconds(large);
  if (!predicted) return text + ".";
  return concat(
      text, ", shm in ", ratio_text(last->median / *predicted), " times what a copy predicts.");
}

bool is_fair(const CollectivePanel& panel) {
  const auto has_number = [&](const CollectiveWay& way) {
    return way.name != kGloo && !against_gloo(panel, way.name).sizes.empty();
  };
  return !panel.oversubscribed() &&
         std::any_of(collective_ways().begin(), collective_ways().end(), has_number);
}

std::string how_sure(const std::vector<CollectivePanel>& panels) {
  std::vector<Estimate> all;
  for (const CollectivePanel& panel : panels) {
    if (!is_fair(panel)) continue;
    for (const CollectiveWay& way : collective_ways()) {
      const auto ratios = against_gloo(panel, way.name).ratios;
      all.insert(all.end(), ratios.begin(), ratios.end());
    }
  }
  return about_sureness(all);
}

std::string about_ranks(const std::vector<CollectivePanel>& panels) {
  int least = 0;
  for (const CollectivePanel& panel : panels) {
    if (panel.oversubscribed() && (least == 0 || panel.ranks < least)) least = panel.ranks;
  }
  return least == 0 ? "" : about_oversubscribed(concat(least, " ranks"));
}

// Ranks that wait poll, and lose most where others take their cores.
std::string about_load(const std::vector<CollectivePanel>& panels) {
  constexpr double kQuiet = 0.1;
  std::vector<double> shares;
  for (const CollectivePanel& panel : panels) {
    for (const auto& each : panel.ways) {
      for (const Sample& sample : each.second.samples) {
        if (sample.worked() && std::isfinite(sample.other_share))
          shares.push_back(sample.other_share);
      }
    }
  }
  if (shares.empty() || median(shares) < kQuiet) return "";
  return concat(
      "Others used ", percent_text(median(shares)),
      " of the cores meanwhile (median), which says more of these times than the ways do: measure "
      "again in quiet.");
}

std::string without_number(const std::vector<CollectivePanel>& panels) {
  std::ptrdiff_t missing = 0;
  std::size_t cells = 0;
  for (const CollectivePanel& panel : panels) {
    for (const auto& each : panel.ways) {
      ++cells;
      if (!each.second.reason.empty()) ++missing;
    }
  }
  return about_missing(missing, cells);
}

}  // namespace

page::Conclusion collective_conclusion(const std::vector<CollectivePanel>& panels) {
  std::vector<std::string> answers, remarks;
  for (const CollectivePanel& panel : panels) {
    if (!is_fair(panel)) continue;
    for (const CollectiveWay& way : collective_ways()) {
      if (way.name == kGloo || panel.way(way.name) == nullptr) continue;
      (way.name == "shm" ? answers : remarks).push_back(way_text(panel, way));
    }
    remarks.push_back(ends_text(panel));
  }
  answers = said(answers);
  if (answers.empty()) {
    answers = {"No collective whose ranks had cores of their own has numbers of Gloo and of shm."};
  }
  for (const auto& remark :
       {how_sure(panels), about_load(panels), about_ranks(panels), without_number(panels)}) {
    remarks.push_back(remark);
  }
  remarks.emplace_back(
      "No figures of collectives were published by the studies, so ours stand beside Gloo's.");
  return {.answer = in_one(answers), .remarks = said(remarks)};
}

}  // namespace lockstep::bench
