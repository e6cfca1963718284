#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bench/experiment/study.h"
#include "bench/study/study_options.h"

namespace lockstep::bench {

/// The file that makes a folder a bench's.
inline constexpr const char* kRequestFile = "bench.json";

/// The request for a bench: with it and samples.jsonl its report can be written again.
struct BenchRequest {
  std::vector<std::string> studies;  ///< by name
  StudyOptions options;

  /// Makes the studies; where several devices are named, one for each of them. A name that this
  /// program does not know is a DataError.
  std::vector<Study> make() const;
};

/// Gives the samples of a quick request so much more work that about six rounds fit into a time.
void fit_to_budget(BenchRequest& request, double seconds);

/// Writes FOLDER/bench.json, or reads it; nothing where there is none. A file of another form is a
/// DataError.
void write_request(const std::filesystem::path& folder, const BenchRequest& request);
std::optional<BenchRequest> read_request(const std::filesystem::path& folder);

/// Throws InvalidArgument, saying what differs, unless a bench that was asked for so may go on with
/// what `before` began. More rounds are no difference.
void check_continues(const BenchRequest& before, const BenchRequest& now);

}  // namespace lockstep::bench
