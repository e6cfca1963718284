#pragma once

#include <string>
#include <vector>

#include "lockstep/train/options.h"

namespace lockstep {

/// Throws InvalidArgument when a folder cannot take a new run: it holds one already, or is a file.
/// Makes nothing.
void check_run_directory(const std::string& path);

/// Is the folder of one run: config.toml, command.txt, env.json, metrics.jsonl, summary.json,
/// logs/.
///
///     RunDirectory run("runs/first");
///     run.write("config.toml", config_toml(options));
class RunDirectory {
 public:
  /// Creates the folder. Throws InvalidArgument when it holds a run already (logs/ alone is none:
  /// launchers make it), std::system_error when it cannot be made.
  explicit RunDirectory(std::string path);

  const std::string& path() const { return path_; }

  /// Names a file in it.
  std::string file(const std::string& name) const { return path_ + "/" + name; }

  /// Writes a whole file: readers see the old one or the new one, never a part. Throws
  /// std::system_error.
  void write(const std::string& name, const std::string& text) const;

 private:
  std::string path_;
};

/// Writes the resolved options as TOML, each under its flag's name.
std::string config_toml(const TrainOptions& options);

/// Writes a command line so that a shell reads it back as it was.
std::string shell_text(const std::vector<std::string>& arguments);

}  // namespace lockstep
