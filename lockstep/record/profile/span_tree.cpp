#include "lockstep/record/profile/span_tree.h"

#include <algorithm>

namespace lockstep {
namespace {

// Of what has none of its own, where no phase is around it: a thread of a replica.
StepPhase phase_of_root(Activity activity) {
  if (activity == Activity::kLayer) return StepPhase::kForward;
  return activity == Activity::kGradientNode ? StepPhase::kBackward : StepPhase::kOther;
}

std::optional<StepPhase> own_phase(Activity activity) {
  switch (activity) {
    case Activity::kInput:
      return StepPhase::kInput;
    case Activity::kCopy:
      return StepPhase::kCopy;
    case Activity::kForward:
      return StepPhase::kForward;
    case Activity::kBackward:
      return StepPhase::kBackward;
    case Activity::kStages:
      return StepPhase::kStages;
    case Activity::kCommunication:
      return StepPhase::kCommunication;
    case Activity::kIdle:
      return StepPhase::kIdle;
    case Activity::kOptimizer:
      return StepPhase::kOptimizer;
    case Activity::kStep:
      return StepPhase::kOther;
    default:
      return std::nullopt;
  }
}

// A message that a stage waits for is idle time, whoever carries it.
StepPhase phase_of(Activity activity, const PlacedSpan* around) {
  if (around != nullptr && around->phase == StepPhase::kIdle) return StepPhase::kIdle;
  if (const auto own = own_phase(activity)) return *own;
  return around == nullptr || around->phase == StepPhase::kOther ? phase_of_root(activity)
                                                                 : around->phase;
}

std::vector<const Span*> in_order(const SpanLane& lane) {
  std::vector<const Span*> order;
  for (const Span& span : lane.spans)
    if (span.activity != Activity::kReduction) order.push_back(&span);
  // Spans are recorded when they end, so of two alike the later one is around the other.
  std::reverse(order.begin(), order.end());
  std::stable_sort(order.begin(), order.end(), [](const Span* a, const Span* b) {
    return a->begin != b->begin ? a->begin < b->begin : a->end > b->end;
  });
  return order;
}

}  // namespace

std::vector<PlacedSpan> placed(const SpanLane& lane) {
  std::vector<PlacedSpan> all;
  std::optional<std::size_t> around;
  for (const Span* span : in_order(lane)) {
    while (around && all[*around].span->end <= span->begin) around = all[*around].parent;
    const PlacedSpan* const parent = around ? &all[*around] : nullptr;
    const std::int64_t whole = span->end - span->begin;
    if (around) all[*around].own -= whole;
    all.push_back(
        {.span = span, .parent = around, .phase = phase_of(span->activity, parent), .own = whole});
    around = all.size() - 1;
  }
  return all;
}

void for_each_stretch(const std::vector<PlacedSpan>& spans,
    const std::function<void(std::size_t index, std::int64_t begin, std::int64_t end)>& use) {
  std::optional<std::size_t> current;
  std::int64_t from = 0;
  const auto until = [&](std::int64_t time) {
    if (current && time > from) use(*current, from, time);
    from = std::max(from, time);
  };
  const auto leave = [&] {
    until(spans[*current].span->end);
    current = spans[*current].parent;
  };
  for (std::size_t index = 0; index < spans.size(); ++index) {
    while (current != spans[index].parent) leave();
    until(spans[index].span->begin);
    from = spans[index].span->begin;
    current = index;
  }
  while (current) leave();
}

}  // namespace lockstep
