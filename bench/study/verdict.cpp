#include "bench/study/verdict.h"

#include <algorithm>
#include <cmath>

#include "bench/statistics/estimate_text.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::bench {
namespace {

constexpr double kSure = 0.9;
constexpr int kSureRounds = 5;  // the fewest whose interval reaches kSure

std::string range_of(const auto& least, const auto& most) {
  return least == most ? concat(least) : concat(least, " to ", most);
}

// How many intervals miss the true ratio, as they may.
std::string about_chance(const std::vector<Estimate>& several) {
  if (several.size() < 2) return "";
  double misses = 0;
  for (const Estimate& ratio : several) misses += 1 - ratio.confidence;
  return concat(" Of these ", several.size(), " intervals about ", std::round(10 * misses) / 10,
      " miss it by chance.");
}

// Far more than a disturbance of the machine does to both of two rounds.
constexpr double kFar = 2.0 / 3;

bool is_far_below(const std::optional<Estimate>& ratio) {
  return ratio && ratio->count > 1 && ratio->high < kFar;
}

bool is_new(const CellResult& result) {
  return result.samples.empty() && result.cell.not_measurable.empty();
}

// Whether it is still open how a cell that has a number compares with the largest.
bool is_open(
    const CellResult& result, const CellResult& first, bool is_second, const std::string& value) {
  const auto ratio = ratio_of(result, first, value);
  if (surely_below_one(ratio) || surely_equal(ratio)) return false;
  return is_second || !is_far_below(ratio);
}

}  // namespace

bool above_one(const std::optional<Estimate>& ratio) {
  return ratio && ratio->count > 1 && ratio->low > 1;
}

bool below_one(const std::optional<Estimate>& ratio) {
  return ratio && ratio->count > 1 && ratio->high < 1;
}

bool surely_below_one(const std::optional<Estimate>& ratio) {
  return below_one(ratio) && ratio->confidence >= kSure;
}

bool surely_equal(const std::optional<Estimate>& ratio) {
  return ratio && ratio->count > 1 && ratio->confidence >= kSure &&
         ratio->low >= 1 / (1 + kEqualMargin) && ratio->high <= 1 + kEqualMargin;
}

std::string equal_text() { return concat("equal within ", std::round(100 * kEqualMargin), " %"); }

std::string equal_explained() {
  return concat("Equal means that the whole interval lies between ",
      ratio_text(1 / (1 + kEqualMargin)), " and ", ratio_text(1 + kEqualMargin), ".");
}

std::string verdict_on(const Estimate& ratio, const std::string& above, const std::string& below) {
  const Verdict verdict{.ratios = {ratio}};
  if (above_one(ratio)) return verdict.sure(above);
  if (below_one(ratio)) return verdict.sure(below);
  return ratio.count < 2 ? "only one round, not conclusive" : "no significant difference";
}

std::string side_of_one(const Estimate& ratio, const std::string& above, const std::string& below) {
  if (above_one(ratio)) return above;
  if (below_one(ratio)) return below;
  return ratio.count < 2 ? "one round" : "no significant difference";
}

void Verdict::add(const std::optional<Estimate>& ratio) {
  if (!ratio) return;
  ratios.push_back(*ratio);
  above += above_one(ratio) ? 1 : 0;
  below += below_one(ratio) ? 1 : 0;
}

bool Verdict::is_above() const {
  return above > 0 &&
         std::ranges::all_of(ratios, [](const Estimate& each) { return each.median >= 1; });
}

bool Verdict::is_below() const {
  return below > 0 &&
         std::ranges::all_of(ratios, [](const Estimate& each) { return each.median <= 1; });
}

bool Verdict::has_intervals() const {
  return std::ranges::any_of(ratios, [](const auto& each) { return each.count > 1; });
}

std::string Verdict::sure(const std::string& what) const {
  const bool is_sure = std::ranges::all_of(
      ratios, [](const Estimate& ratio) { return ratio.count < 2 || ratio.confidence >= kSure; });
  return is_sure ? "surely " + what : what + " in every round";
}

std::string Verdict::explained() const {
  if (ratios.empty()) return "";
  std::vector<Estimate> several = ratios;
  std::erase_if(several, [](const Estimate& ratio) { return ratio.count < 2; });
  if (several.empty()) return "One round was measured: there is no interval, and nothing is sure.";
  const auto [few, many] = std::ranges::minmax_element(
      several, [](const Estimate& one, const Estimate& other) { return one.count < other.count; });
  const std::string interval = concat("An interval over ", range_of(few->count, many->count),
      " rounds holds the true ratio with a probability of ",
      range_of(percent_text(few->confidence), percent_text(many->confidence)));
  if (few->confidence >= kSure) {
    return concat(interval, "; surely means that the whole interval lies on one side of 1.",
        about_chance(several));
  }
  return concat(interval,
      ": a result that holds in every round is likely, but not sure; that takes ", kSureRounds,
      " rounds.", about_chance(several));
}

std::string in_one(std::vector<std::string> sentences) {
  std::erase(sentences, "");
  return joined(sentences, " ");
}

std::string about_missing(const std::vector<CellResult>& results) {
  const auto missing =
      std::ranges::count_if(results, [](const auto& each) { return !each.reason.empty(); });
  if (missing == 0) return "";
  return concat(missing, " of ", results.size(), " cells have no number: the tables say why.");
}

std::string about_oversubscribed(const std::string& what) {
  return concat(what,
      " are more than there are cores: such cells are marked oversubscribed, are not a fair test "
      "and are left out here.");
}

std::optional<std::size_t> largest(
    std::span<const CellResult> results, const std::string& value, std::optional<std::size_t> but) {
  std::optional<std::size_t> found;
  double most = 0;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto estimate = results[i].estimate(value);
    if (!estimate || results[i].oversubscribed || i == but) continue;
    if (found && estimate->median <= most) continue;
    found = i;
    most = estimate->median;
  }
  return found;
}

std::vector<bool> contenders(std::span<const CellResult> results, const std::string& value) {
  std::vector<bool> goes_on;
  const auto first = largest(results, value), second = largest(results, value, first);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const bool has_number = results[i].estimate(value) && !results[i].oversubscribed;
    goes_on.push_back(
        is_new(results[i]) ||
        (has_number && (i == first || is_open(results[i], results[*first], i == second, value))));
  }
  const bool is_alone = std::ranges::count(goes_on, true) == 1;
  if (first && is_alone) goes_on[*first] = false;
  return goes_on;
}

}  // namespace lockstep::bench
