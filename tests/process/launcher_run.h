#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include "lockstep/launch/child_process.h"

namespace lockstep::testing {

/// Is what a program said and how it ended.
struct Finished {
  launch::ExitStatus status;
  std::string output;
  std::string errors;
};

/// Runs the built `lockstep` with its output collected; whatever happens, nothing of it outlives
/// this object.
class LauncherRun {
 public:
  explicit LauncherRun(
      std::vector<std::string> arguments, const std::vector<std::string>& variables = {},
      const std::string& program = "");

  pid_t pid() const { return process_.pid(); }

  /// Sends a signal to the launcher alone.
  void signal(int signal) const;

  /// Waits until the output holds so many whole lines, and returns all of it.
  std::string wait_for_lines(std::size_t lines);

  /// Waits for the end.
  Finished finish();

 private:
  void read(int milliseconds);

  launch::ChildProcess process_;
  FileDescriptor output_pipe_;
  FileDescriptor errors_pipe_;
  std::string output_;
  std::string errors_;
};

/// Runs `lockstep` to its end.
Finished run_launcher(
    const std::vector<std::string>& arguments, const std::vector<std::string>& variables = {},
    const std::string& program = "");

/// Gives the path of the built `lockstep`.
std::string built_launcher();

/// Says that a process is there and has not ended; one that nobody has waited for yet has ended.
bool is_running(pid_t pid);

/// Waits until none of the processes runs; false if one still does after a minute.
bool all_end(const std::vector<pid_t>& pids);

/// Reads the numbers that stand after a word: `pid 12` on each line.
std::vector<pid_t> numbers_after(const std::string& word, const std::string& text);

/// Is an empty folder that is removed with all that is in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();

  std::string path() const { return path_; }
  std::string path(const std::string& name) const { return path_ + "/" + name; }

  /// Lists the names in it, sorted.
  std::vector<std::string> names() const;

  std::string text_of(const std::string& name) const;

 private:
  std::string path_;
};

}  // namespace lockstep::testing
