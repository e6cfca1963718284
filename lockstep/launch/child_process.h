#pragma once

#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/launch/exit_status.h"
#include "lockstep/launch/guardian.h"

namespace lockstep::launch {

/// The program of a child process, and its surroundings.
struct ChildOptions {
  std::string program;                   ///< path of the file to execute; PATH is not searched
  std::vector<std::string> arguments;    ///< what follows the program's name
  std::vector<std::string> environment;  ///< all of it, as NAME=VALUE
  std::vector<int> cpus;                 ///< the cores that it may use; empty: as the parent
  bool inherit_input = false;            ///< standard input; otherwise it reads `input`
  int input = -1;                        ///< a descriptor of ours; -1: /dev/null
  bool inherit_output = false;           ///< standard output and error; otherwise they are pipes
  int kept = -1;                       ///< a descriptor that it has under the same number; -1: none
  std::vector<int> held_signals = {};  ///< it begins with these blocked; all others are not
  const Guardian* guardian = nullptr;  ///< kills all of it when we are killed; may be none
};

/// One child process, which leads its own process group and dies with the thread that made it.
///
/// Make it in a thread that lives as long as the run: the kernel's death signal follows the thread
/// that forked.
class ChildProcess {
 public:
  /// Starts the child; returns when the program has been executed. Throws std::system_error that
  /// names the program and the step that failed.
  explicit ChildProcess(const ChildOptions& options);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;

  /// Kills what is left of the process group and waits for the child, patience::kToDie at most.
  ~ChildProcess();

  pid_t pid() const { return pid_; }

  /// Returns a descriptor that becomes readable when the child has ended.
  int descriptor() const { return descriptor_.get(); }

  /// Hands over the reading end of standard output, without blocking reads; empty if it was
  /// inherited.
  FileDescriptor take_output() { return std::move(output_); }

  /// Hands over the reading end of standard error, without blocking reads; empty if it was
  /// inherited.
  FileDescriptor take_errors() { return std::move(errors_); }

  /// Returns how the child ended; nothing while it runs. Its id stays taken until the destructor,
  /// so that a signal to the group can never reach a stranger.
  std::optional<ExitStatus> status() const;

  /// Sends a signal to the child and to all processes of its group; false if it may not, since they
  /// have become another user's (`sudo`).
  bool signal_group(int signal) const noexcept;

  /// Lets go of a child that cannot be killed: it stays our process's, but no more this object's.
  void leave() noexcept { pid_ = -1; }

 private:
  pid_t pid_ = -1;
  FileDescriptor descriptor_;
  FileDescriptor output_;
  FileDescriptor errors_;
};

/// Finds the file that a program's name means: a name with a slash is a path; one without is looked
/// up in the folders of `search_path` (as PATH), then in the current directory.
///
/// Throws InvalidArgument that names the program when there is none, or when it cannot be executed.
std::string find_program(const std::string& name, const std::string& search_path);

}  // namespace lockstep::launch
