#pragma once

#include <chrono>
#include <optional>
#include <signal.h>
#include <string>
#include <sys/types.h>
#include <vector>

#include "lockstep/core/exit_code.h"
#include "lockstep/core/file_descriptor.h"

namespace lockstep::launch {

/// The end of a process: by its own exit code, or by a signal (then `signal` is not zero).
struct ExitStatus {
  int code = 0;
  int signal = 0;

  bool succeeded() const { return code == 0 && signal == 0; }

  /// Returns what a shell would: the code, or 128 + the signal.
  int result() const { return signal != 0 ? 128 + signal : code; }

  /// Returns whether it is the end of one of Lockstep's programs for this reason.
  bool is(ExitCode reason) const { return result() == static_cast<int>(reason); }

  /// Returns it in words: `exited with code 7`, `was killed by SIGKILL (signal 9)`.
  std::string text() const;
};

/// Returns the name of a signal, `SIGTERM`; of one without a name `signal 40`.
std::string signal_name(int signal);

/// Finds the signal of a name, `SIGTERM` or `TERM`; nothing when there is none.
std::optional<int> signal_number(const std::string& name);

/// Turns signals to this process into something to read; their old effect returns when it ends.
///
/// A signal that is ignored on entry stays ignored, so that `nohup` keeps its meaning.
class SignalReader {
 public:
  explicit SignalReader(const std::vector<int>& signals);
  SignalReader(const SignalReader&) = delete;
  SignalReader& operator=(const SignalReader&) = delete;
  ~SignalReader();

  /// Returns a descriptor that becomes readable when a signal has come.
  int descriptor() const { return descriptor_.get(); }

  /// Returns the signals that have come since the last call.
  std::vector<int> read() const;

 private:
  sigset_t before_;
  FileDescriptor descriptor_;
};

/// Makes this process the parent of its descendants whose own parent ends, while this object
/// exists.
class Subreaper {
 public:
  Subreaper();
  Subreaper(const Subreaper&) = delete;
  Subreaper& operator=(const Subreaper&) = delete;
  ~Subreaper();

 private:
  int before_ = 0;
};

/// Returns the children of the calling thread's process, including dead ones that were not waited
/// for.
std::vector<pid_t> children();

/// Waits for those dead children that are not among `known`.
void reap_strays(const std::vector<pid_t>& known);

/// Kills all children that are not among `known`, including those that become ours by that, and
/// waits for their end. Returns those that are left: another user's, which may not be killed, and
/// those that the kernel holds for longer than `patience`.
std::vector<pid_t> kill_strays(
    const std::vector<pid_t>& known, std::chrono::milliseconds patience = std::chrono::seconds(2));

/// A small process that kills the workers, and all that they have started, when the launcher itself
/// is killed.
///
/// The kernel's death signal reaches the workers alone. The guardian kills their process groups,
/// and then every process of this user that has its mark in the environment, whatever group or
/// session that went to. What has another environment (`env -i`) escapes.
class Guardian {
 public:
  /// Starts it. Those that share processes share a mark, as make_mark() draws it. Throws
  /// std::system_error.
  explicit Guardian(std::string mark = make_mark());
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  /// Dismisses it and waits for its end.
  ~Guardian();

  pid_t pid() const { return pid_; }

  /// Puts one process group under its watch. Async-signal-safe: a child calls it before it becomes
  /// its program, so that nothing it starts can come first.
  void watch(pid_t group) const;

  /// The variable by which it finds processes, LOCKSTEP_GUARDIAN, and its value, which no other
  /// launcher has.
  static constexpr const char* kVariable = "LOCKSTEP_GUARDIAN";
  static std::string make_mark();
  const std::string& mark() const { return mark_; }

 private:
  std::string mark_;
  FileDescriptor control_;
  pid_t pid_ = -1;
};

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

  /// Gives up a child that cannot be killed: it remains a child of this process, but this object
  /// no longer waits for it.
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
