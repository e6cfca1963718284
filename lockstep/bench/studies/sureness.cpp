#include "lockstep/bench/studies/sureness.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "lockstep/bench/studies/estimate_text.h"
#include "lockstep/core/error.h"

namespace lockstep::bench {
namespace {

constexpr double kSure = 0.9;
constexpr int kSureRounds = 5;  // an interval over so many reaches kSure

std::vector<Estimate> with_rounds(std::span<const Estimate> ratios) {
  std::vector<Estimate> several;
  std::copy_if(ratios.begin(), ratios.end(), std::back_inserter(several), [](const auto& ratio) {
    return ratio.count > 1;
  });
  return several;
}

template <class T>
std::string range_of(const T& least, const T& most) {
  return least == most ? concat(least) : concat(least, " to ", most);
}

}  // namespace

bool above_one(const std::optional<Estimate>& ratio) {
  return ratio && ratio->count > 1 && ratio->low > 1;
}

bool below_one(const std::optional<Estimate>& ratio) {
  return ratio && ratio->count > 1 && ratio->high < 1;
}

std::string sure(const Estimate& ratio, const std::string& what) {
  return sure(std::span(&ratio, 1), what);
}

std::string sure(std::span<const Estimate> ratios, const std::string& what) {
  const bool is_sure = std::all_of(ratios.begin(), ratios.end(), [](const Estimate& ratio) {
    return ratio.count < 2 || ratio.confidence >= kSure;
  });
  return is_sure ? concat("surely ", what) : concat(what, " in every round");
}

bool has_intervals(std::span<const Estimate> ratios) { return !with_rounds(ratios).empty(); }

std::string told_from_one(
    const Estimate& ratio, const std::string& above, const std::string& below) {
  if (above_one(ratio)) return sure(ratio, above);
  if (below_one(ratio)) return sure(ratio, below);
  return ratio.count < 2 ? "one round, so not sure" : "not told apart";
}

std::string side_of_one(const Estimate& ratio, const std::string& above, const std::string& below) {
  if (above_one(ratio)) return above;
  if (below_one(ratio)) return below;
  return ratio.count < 2 ? "one round" : "not told apart";
}

std::string about_sureness(std::span<const Estimate> ratios) {
  if (ratios.empty()) return "";
  const std::vector<Estimate> several = with_rounds(ratios);
  if (several.empty()) return "One round was measured: there is no interval, and nothing is sure.";
  const auto [few, many] = std::minmax_element(
      several.begin(), several.end(),
      [](const Estimate& one, const Estimate& other) { return one.count < other.count; });
  const std::string interval = concat(
      "An interval over ", range_of(few->count, many->count),
      " rounds holds the true ratio with a probability of ",
      range_of(percent_text(few->confidence), percent_text(many->confidence)));
  if (few->confidence >= kSure) {
    return concat(interval, "; sure means that the whole of it lies on one side of 1.");
  }
  return concat(
      interval, ": what was so in every round is likely, but not sure, for which it takes ",
      kSureRounds, " rounds.");
}

}  // namespace lockstep::bench
