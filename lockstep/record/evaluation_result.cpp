#include "lockstep/record/evaluation_result.h"

#include <algorithm>

#include "lockstep/core/error.h"

namespace lockstep {

std::optional<double> Confusion::OfClass::accuracy() const {
  if (samples == 0) return std::nullopt;
  return static_cast<double>(right) / static_cast<double>(samples);
}

Confusion::Confusion(std::int64_t classes) : of_class_(static_cast<std::size_t>(classes)) {}

void Confusion::add(std::int64_t label, std::int64_t predicted, std::int64_t samples) {
  const auto is_class = [&](std::int64_t number) { return number >= 0 && number < classes(); };
  check(is_class(label) && is_class(predicted), "confusion: class ", label, ", taken for ",
      predicted, ", of ", classes(), " classes");
  OfClass& own = of_class_[static_cast<std::size_t>(label)];
  own.samples += samples;
  if (label == predicted) own.right += samples;
  counts_[{label, predicted}] += samples;
}

std::int64_t Confusion::count(std::int64_t label, std::int64_t predicted) const {
  const auto found = counts_.find({label, predicted});
  return found == counts_.end() ? 0 : found->second;
}

std::vector<Confusion::Mistake> Confusion::mistakes(std::size_t most) const {
  std::vector<Mistake> all;
  for (const auto& [pair, count] : counts_)
    if (pair.first != pair.second) all.push_back({pair.first, pair.second, count});
  std::stable_sort(
      all.begin(), all.end(), [](const Mistake& a, const Mistake& b) { return a.count > b.count; });
  all.resize(std::min(most, all.size()));
  return all;
}

}  // namespace lockstep
