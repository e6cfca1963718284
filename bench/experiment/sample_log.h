#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "bench/experiment/sample.h"
#include "lockstep/core/file_descriptor.h"

namespace lockstep::bench {

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
