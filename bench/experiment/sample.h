#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::bench {

/// One run of a cell and what was measured, or why nothing was.
///
/// It is a line of samples.jsonl, the one source of tables, figures and pages.
struct Sample {
  std::string study;
  std::string cell;
  int round = 0;                                     ///< counted from 1
  std::string time = {};                             ///< when it began, `2026-01-31T12:00:00.123Z`
  std::map<std::string, std::string> settings = {};  ///< of the cell, by name
  std::vector<std::string> command = {};             ///< of the cell
  int places = 1;
  bool oversubscribed = false;                ///< more places than cores
  std::map<std::string, double> values = {};  ///< by name; NaN: measured and not finite
  double seconds = 0;                         ///< the whole child process took
  double calibration_seconds = 0;             ///< of a fixed piece of arithmetic, just before
  double other_share = 0;           ///< of the cores that others used meanwhile; NaN: not known
  int code = 0;                     ///< the child's exit code, or 128 + the signal
  std::string failure = {};         ///< what went wrong; empty: nothing
  std::string not_measurable = {};  ///< why it was not tried; empty: it was

  /// True if it has values.
  bool worked() const { return failure.empty() && not_measurable.empty(); }

  bool operator==(const Sample&) const = default;
};

/// Writes a sample as one JSON object on one line, without a newline: `{"v":1,"study":...}`. A
/// number that is not finite is `null`; bytes that are not UTF-8 become U+FFFD.
std::string to_json(const Sample& sample);

/// Reads what to_json() wrote; `null` is NaN, unknown keys are ignored. What is not as the format
/// says is a DataError that begins with `where`, as `samples.jsonl: line 3`.
Sample parse_sample(std::string_view text, const std::string& where);

}  // namespace lockstep::bench
