#include "lockstep/bench/studies/collectives/collective_panels.h"

#include <algorithm>
#include <stdexcept>

#include "lockstep/bench/plot/number_text.h"
#include "lockstep/bench/studies/cell_note.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

CollectivePanel& panel_of(std::vector<CollectivePanel>& panels, const CellResult& result) {
  const auto collective = find_collective(result.setting("op"));
  if (!collective) throw std::logic_error("collectives: a cell without op");
  const int ranks = std::stoi(result.setting("ranks"));
  const auto found = std::find_if(panels.begin(), panels.end(), [&](const CollectivePanel& each) {
    return each.collective == *collective && each.ranks == ranks;
  });
  if (found != panels.end()) return *found;
  panels.push_back(
      {.collective = *collective,
       .ranks = ranks,
       .sizes = sweep_sizes(std::stoll(result.setting("largest")))});
  return panels.back();
}

std::string joined(const std::vector<std::string>& parts, const char* between) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : between) + part;
  return text;
}

}  // namespace

const CellResult* CollectivePanel::way(const std::string& name) const {
  const auto found = ways.find(name);
  return found == ways.end() ? nullptr : &found->second;
}

bool CollectivePanel::oversubscribed() const {
  return std::any_of(
      ways.begin(), ways.end(), [](const auto& each) { return each.second.oversubscribed; });
}

std::optional<Estimate> CollectivePanel::seconds(
    const std::string& name, std::int64_t bytes) const {
  const CellResult* const result = way(name);
  return result == nullptr ? std::nullopt : result->estimate(seconds_value(bytes));
}

std::optional<Estimate> CollectivePanel::gloo_over(
    const std::string& name, std::int64_t bytes) const {
  const CellResult* const gloo = way(kGloo);
  const CellResult* const other = way(name);
  if (gloo == nullptr || other == nullptr || gloo == other) return std::nullopt;
  return ratio_of(*gloo, *other, seconds_value(bytes));
}

std::optional<double> CollectivePanel::predicted_seconds(std::int64_t bytes) const {
  std::vector<double> copies;
  for (const auto& each : ways) {
    for (const auto& [round, seconds] : each.second.by_round(copy_value(bytes))) {
      copies.push_back(seconds);
    }
  }
  if (copies.empty()) return std::nullopt;
  return median(copies) * copy_share(collective, ranks);
}

// What holds of all ways is said once.
std::string CollectivePanel::note(std::int64_t bytes) const {
  std::vector<std::string> notes;                           // in the order of the ways
  std::map<std::string, std::vector<std::string>> of_whom;  // titles
  for (const CollectiveWay& each : collective_ways()) {
    const CellResult* const result = way(each.name);
    if (result == nullptr) continue;
    const std::string text = cell_note(*result, seconds_value(bytes));
    if (text == "-") continue;
    if (of_whom[text].empty()) notes.push_back(text);
    of_whom[text].push_back(each.title);
  }
  std::vector<std::string> parts;
  for (const std::string& text : notes) {
    const bool all = of_whom[text].size() == ways.size();
    parts.push_back(all ? text : concat(joined(of_whom[text], ", "), ": ", text));
  }
  return parts.empty() ? "-" : joined(parts, "; ");
}

std::string CollectivePanel::name() const {
  return concat(name_of(collective), " of ", ranks, " ranks");
}

std::string seconds_value(std::int64_t bytes) { return concat("seconds_", bytes); }

std::string copy_value(std::int64_t bytes) { return concat("copy_seconds_", bytes); }

std::vector<CollectivePanel> collective_panels(
    const Study& study, std::span<const Sample> samples) {
  std::vector<CollectivePanel> panels;
  for (CellResult& result : cell_results(study, samples)) {
    const std::string way = result.setting("way");
    panel_of(panels, result).ways.emplace(way, std::move(result));
  }
  return panels;
}

std::string size_text(std::int64_t bytes) {
  return plot::byte_texts({static_cast<double>(bytes)}).front();
}

}  // namespace lockstep::bench
