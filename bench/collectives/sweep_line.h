#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/collectives/collective.h"

namespace lockstep::bench {

/// The name of the file of results in a measurement's folder: one line a collective, backend and
/// size.
inline constexpr const char* kSweepFile = "collectives.jsonl";

/// The measurements of one collective over one backend at one size.
struct SweepLine {
  Collective collective = Collective::kAllReduce;
  std::string backend;
  bool group_memory = true;
  int ranks = 2;
  std::int64_t bytes = 0;  ///< of the message, as bus_factor() has it
  int calls = 1;           ///< in a row in each repeat
  /// Seconds that a call took, those of the slowest rank; one value for each repeat.
  std::vector<double> seconds = {};
  /// Seconds in which each rank copied as many bytes within memory of its own, all at once.
  std::vector<double> copy_seconds = {};
  /// Seconds for which a call keeps a core busy, of the rank that needs most; the median of the
  /// repeats. Nothing in files of older versions.
  std::optional<double> core_seconds = {};
  bool checked = false;  ///< the result was compared with the exact one

  double median_seconds() const;
  double median_copy_seconds() const;
  double algorithm_bandwidth() const;  ///< bytes a second
  double bus_bandwidth() const;        ///< bytes a second
};

/// Writes one JSON object without a newline: `{"v":1,"op":"all_reduce","backend":"shm",...}`.
std::string to_json(const SweepLine& line);

/// Reads what to_json() wrote; unknown keys are ignored. Anything else is a DataError that begins
/// with `where`.
SweepLine parse_sweep_line(std::string_view text, const std::string& where);

/// Reads a file of such lines. A DataError names file and line.
std::vector<SweepLine> read_sweep(const std::filesystem::path& path);

/// Sets results for a terminal: a row for each collective, backend and size.
std::string sweep_table(const std::vector<SweepLine>& lines);

}  // namespace lockstep::bench
