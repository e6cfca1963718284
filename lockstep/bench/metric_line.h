#pragma once

#include <optional>
#include <string_view>

#include "lockstep/bench/metrics_reader.h"

namespace lockstep::bench {

/// Reads one line of metrics.jsonl; nothing if it is not JSON. Anything else that is wrong is a
/// DataError that begins with `where`.
std::optional<MetricLine> parse_metric_line(std::string_view text, const std::string& where);

/// Reads a time as the writer gives it, `2026-01-31T12:00:00.123Z`, in seconds since 1970; nothing
/// for anything else.
std::optional<double> parse_utc(const std::string& text);

}  // namespace lockstep::bench
