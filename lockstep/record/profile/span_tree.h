#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "lockstep/core/spans.h"
#include "lockstep/record/profile/profile.h"

namespace lockstep {

/// A span among those of its thread.
struct PlacedSpan {
  const Span* span = nullptr;
  std::optional<std::size_t> parent = {};  ///< the span around it
  StepPhase phase = StepPhase::kOther;     ///< that its own time is for
  std::int64_t own = 0;                    ///< nanoseconds, those of the spans in it left out
};

/// Returns the spans of a thread in the order of their begins, each after the one around it.
/// Reductions are left out: they are beside what the thread does.
std::vector<PlacedSpan> placed(const SpanLane& lane);

/// Calls `use` with each stretch of a thread's time, in order, and the innermost span there.
void for_each_stretch(const std::vector<PlacedSpan>& spans,
    const std::function<void(std::size_t index, std::int64_t begin, std::int64_t end)>& use);

}  // namespace lockstep
