#include "bench/study/contenders.h"

#include <algorithm>

#include "bench/study/verdict.h"

namespace lockstep::bench {
namespace {

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
  const bool is_alone = std::count(goes_on.begin(), goes_on.end(), true) == 1;
  if (first && is_alone) goes_on[*first] = false;
  return goes_on;
}

}  // namespace lockstep::bench
