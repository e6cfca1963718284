#pragma once

#include <chrono>
#include <functional>
#include <sstream>
#include <string>
#include <sys/types.h>
#include <vector>

#include "tests/support/temporary_folder.h"

#include "lockstep/launch/child_process.h"

namespace lockstep::testing {

using Words = std::vector<std::string>;

/// Returns the words of a line, between its blanks: words("--model toy --lr 0.1").
inline Words words(const std::string& line) {
  std::istringstream text(line);
  Words found;
  for (std::string word; text >> word;) found.push_back(word);
  return found;
}

/// A guard against waiting for ever, which a machine with other programs must not reach either.
constexpr std::chrono::minutes kGuard{8};

/// The end of a command, and its output.
struct Ended {
  launch::ExitStatus status;
  std::string out;
  std::string err;

  int code() const { return status.result(); }  ///< as a shell reports it

  /// Expects this code; with another the test fails, and shows what was printed.
  Ended with_code(
      int expected, const char* file = __builtin_FILE(), int line = __builtin_LINE()) &&;
};

/// The built `lockstep`, run as by a user; nothing of it outlives this object.
class Command {
 public:
  /// Starts it with these variables added to ours, or another program in its place.
  explicit Command(Words arguments, const Words& variables = {}, const std::string& program = "");

  pid_t pid() const { return process_.pid(); }

  /// Sends a signal to the command alone.
  void signal(int signal) const;

  /// Reads until something holds; returns false when the command ends before or takes too long.
  bool meets(const std::function<bool()>& holds);

  /// Reads until something holds; fails the test and returns false when the command ends before or
  /// takes too long: a guard against waiting for ever.
  bool wait_until(const std::function<bool()>& holds);

  /// Reads until standard output has that many whole lines, and returns all of it.
  std::string wait_for_lines(std::ptrdiff_t lines);

  /// Returns what was printed on standard error and read so far.
  const std::string& err() const { return err_; }

  /// Waits for the end; the test fails if it does not come.
  Ended wait();

 private:
  bool read(int milliseconds);

  launch::ChildProcess process_;
  FileDescriptor out_pipe_;
  FileDescriptor err_pipe_;
  std::string out_;
  std::string err_;
};

/// Runs `lockstep ARGUMENTS` to its end.
Ended run_command(
    const Words& arguments, const Words& variables = {}, const std::string& program = "");

/// Runs `lockstep train FLAGS` to its end.
Ended train(const std::string& flags);

/// Returns the arguments by which ranks, two unless said otherwise, run a script.
Words shell_ranks(
    const std::string& script, const std::string& flags = "", const std::string& ranks = "2");

/// The ways to close standard streams, for run_through_shell().
inline constexpr const char* kClosedStreams[] = {"<&-", ">&-", "2>&-", "<&- >&- 2>&-"};

/// Runs `lockstep ARGUMENTS` in the place of a shell, with these redirections and after these
/// words.
Ended run_through_shell(
    const std::string& redirections, const Words& arguments, const std::string& before = "");

/// Returns the path of the built `lockstep`.
std::string built_lockstep();

/// Returns whether a process is there and has not ended, even if nothing has waited for it yet.
bool is_running(pid_t pid);

/// Waits for the condition; after kGuard it is false.
bool eventually(const std::function<bool()>& condition);

/// Waits until none of the processes runs; false if one still does.
bool all_end(const std::vector<pid_t>& pids);

/// Returns the running processes whose command line has this text, the test itself left out.
std::vector<pid_t> processes_with(const std::string& text);

/// Returns the running processes with this text, as NAME=VALUE, in their environment.
std::vector<pid_t> processes_with_variable(const std::string& text);

/// Reads a variable of another process's environment; empty when it has none.
std::string variable_of(pid_t process, const std::string& name);

/// Returns the numbers that follow a word: `pid 12` on each line.
std::vector<pid_t> numbers_after(const std::string& word, const std::string& text);

/// Returns how often a text occurs in another.
std::ptrdiff_t count_of(const std::string& what, const std::string& text);

}  // namespace lockstep::testing
