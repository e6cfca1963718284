#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/file_descriptor.h"

namespace lockstep::bench {

/// The file of a bench's samples, in its folder.
inline constexpr const char* kSamplesFile = "samples.jsonl";

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

/// The content of a samples.jsonl, in the file's order.
struct SampleFile {
  std::vector<Sample> samples;
  std::string torn;       ///< names a last line that was left out, `FILE: line N: ...`; or empty
  std::size_t whole = 0;  ///< bytes before that line
};

/// Reads the text of a samples.jsonl. A last line that is not JSON was torn when its writer was
/// killed: it is left out and reported. Anything else that is not as the format says is a DataError
/// that names file, line and reason.
SampleFile parse_samples(std::string_view text, const std::string& file);

/// Reads a samples.jsonl; one that is missing is a DataError.
SampleFile read_samples(const std::filesystem::path& path);

/// Leaves of samples of the same study, cell and round the last one: a failed one may have been
/// tried again.
std::vector<Sample> latest(const std::vector<Sample>& samples);

/// A file of samples; each is durable before append() returns.
class SampleLog {
 public:
  /// Opens the file, or makes it, and reads the samples that it holds; a torn last line is cut off.
  /// A file that another process appends to is an InvalidArgument. Throws DataError as
  /// parse_samples(), std::system_error.
  explicit SampleLog(const std::filesystem::path& path);

  /// Returns all samples, those of earlier runs first.
  const std::vector<Sample>& samples() const { return samples_; }

  /// Returns a message about a torn line that was cut off; empty: there was none.
  const std::string& torn() const { return torn_; }

  /// Throws std::system_error, for one when the disk is full.
  void append(const Sample& sample);

 private:
  void write(const std::string& text);
  void cut() const;

  std::string path_;
  FileDescriptor file_;
  std::size_t size_ = 0;  // of whole lines
  std::vector<Sample> samples_;
  std::string torn_;
};

}  // namespace lockstep::bench
