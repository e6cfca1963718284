#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/record/metrics.h"

namespace lockstep {

/// A line of metrics.jsonl; what its `nonfinite` names is NaN.
struct MetricLine {
  MetricRecord record;
  std::optional<double> unix_seconds = {};  ///< when it was written
};

/// The content of a metrics.jsonl, in the file's order.
struct MetricsFile {
  std::vector<MetricLine> lines;
  std::vector<std::string> left_out;  ///< torn lines, each as `FILE: line N: ...`
};

/// Reads the text of a metrics.jsonl.
///
/// Unknown keys are ignored. A line that is not JSON is left out where a writer that was killed can
/// have torn it: at the end, and before a line of a later restart. Anything else that is not as the
/// format says is a DataError that names file, line and reason.
MetricsFile parse_metrics(std::string_view text, const std::string& file);

/// Reads a whole file of a run; a DataError for one of more than so many bytes, which even a
/// profile with boxes of each thread has not.
std::string text_of_run_file(
    const std::filesystem::path& path, std::size_t most = std::size_t{256} << 20);

/// Reads a metrics.jsonl.
MetricsFile read_metrics(const std::filesystem::path& path);

/// Gives the curve that a run made over its restarts: of each rank, split and step the line of the
/// highest restart, of equals the last; sorted by rank, then step, then split.
std::vector<MetricLine> merged(const std::vector<MetricLine>& lines);

/// Reads a time as the writer gives it, `2026-01-31T12:00:00.123Z`, in seconds since 1970; nothing
/// for anything else.
std::optional<double> parse_utc(const std::string& text);

}  // namespace lockstep
