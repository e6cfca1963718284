#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/core/enum_names.h"
#include "lockstep/formats/open_directory.h"
#include "lockstep/record/evaluation_result.h"
#include "lockstep/record/metrics_writer.h"
#include "lockstep/train/options/options.h"

namespace lockstep {

/// True if a folder holds a run, even one that has only begun.
bool holds_run(const std::string& path);

/// True if these settings resume the run in a folder: they name the run or a snapshot of it, or
/// resume automatically.
bool continues(const std::string& path, const ResumeSettings& resume);

/// Throws InvalidArgument when a folder cannot take this run: it holds another one, or other files,
/// is used by a process of this host, is a file, or its name is not UTF-8. Makes nothing.
void check_run_directory(const std::string& path, const ResumeSettings& resume = {});

/// Makes the folder logs/ of a run, unless it is there, and opens it. A link in its place is a
/// DataError: old logs are removed there, and new ones written.
OpenDirectory make_logs_folder(const std::string& path);

/// Removes what a run has made in its folder, its snapshots first and config.toml last; logs/ and
/// files of others stay.
void remove_run(const std::string& path);

/// Makes the folder of a run. Throws InvalidArgument when it holds a run already (logs/ alone is
/// none: launchers make it) and these settings do not go on with it, std::system_error when it
/// cannot be made. If this run `replaces` that one, it is removed first.
void make_run_directory(
    const std::string& path, const ResumeSettings& resume = {}, bool replaces = false);

/// The weights of a run: those of its best epoch, or its last ones.
enum class Which { kBest, kLast };
constexpr auto names_of(Which) {
  return std::array{EnumName{Which::kBest, "best"}, EnumName{Which::kLast, "last"}};
}

/// Finds the weights in the folder of a run, or of a snapshot; without a wish its best ones, or the
/// last where no epoch was compared. Throws DataError where there are none.
WeightsSource weights_of_run(const std::string& folder, std::optional<Which> which = {});

/// Writes a command line so that a shell reads it back as it was.
std::string shell_text(const std::vector<std::string>& arguments);

/// The writer of a run's folder: config.toml, command.txt, env.json, metrics.jsonl, summary.json,
/// perhaps profile/ and tensorboard/, beside logs/ and snapshots/. Make it on rank 0 only.
class RunRecorder : public MetricsWriter {
 public:
  /// Makes the folder of the options' output, and in it config.toml, command.txt, env.json,
  /// metrics.jsonl; or goes on with the run that it holds, if the options say so, or removes it if
  /// this one `replaces` it. `steps` were made before this start.
  RunRecorder(const TrainOptions& options, const std::vector<std::string>& command,
      const std::string& environment_json, bool replaces = false, std::int64_t steps = 0);

  /// Returns the path of a file in the folder.
  std::string file(const std::string& name) const { return path_ + "/" + name; }

  /// Appends those of these records that metrics.jsonl did not have when this start opened it.
  void append_missing(const std::vector<MetricRecord>& records);

  /// Writes profile/profile.json and profile/trace.json. Throws std::system_error.
  void write_profile(const std::string& profile, const std::string& trace) const;

 private:
  std::string path_;
};

}  // namespace lockstep
