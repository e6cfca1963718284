#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/core/spans.h"

namespace lockstep {

/// Writes the spans of one rank as events of Chrome's trace format, separated by commas, without
/// the list around them; `start` is time 0.
std::string trace_events(int rank, const std::vector<SpanLane>& lanes, std::int64_t start);

/// Puts the events of all ranks into a whole file, which chrome://tracing and Perfetto open.
std::string trace_file(const std::vector<std::string>& events);

}  // namespace lockstep
