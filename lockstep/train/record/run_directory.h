#pragma once

#include <string>
#include <vector>

#include "lockstep/train/options/options.h"

namespace lockstep {

/// Says whether a folder holds a run, even one that has only begun.
bool holds_run(const std::string& path);

/// Says whether these settings may go on with the run that a folder holds: it is what they go on
/// from, or what they are to look into.
bool continues(const std::string& path, const ResumeSettings& resume);

/// Throws InvalidArgument when a folder cannot take this run: it holds another one, or other files,
/// or is a file. Makes nothing.
void check_run_directory(const std::string& path, const ResumeSettings& resume = {});

/// Is the folder of one run: config.toml, command.txt, env.json, metrics.jsonl, summary.json,
/// logs/.
///
///     RunDirectory run("runs/first");
///     run.write("config.toml", config_toml(options));
class RunDirectory {
 public:
  /// Creates the folder. Throws InvalidArgument when it holds a run already (logs/ alone is none:
  /// launchers make it) and these settings do not go on with it, std::system_error when it cannot
  /// be made.
  explicit RunDirectory(std::string path, const ResumeSettings& resume = {});

  const std::string& path() const { return path_; }

  /// Names a file in it.
  std::string file(const std::string& name) const { return path_ + "/" + name; }

  /// Writes a whole file: readers see the old one or the new one, never a part. Throws
  /// std::system_error.
  void write(const std::string& name, const std::string& text) const;

 private:
  std::string path_;
};

/// Writes a command line so that a shell reads it back as it was.
std::string shell_text(const std::vector<std::string>& arguments);

}  // namespace lockstep
