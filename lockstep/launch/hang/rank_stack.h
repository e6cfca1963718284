#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "lockstep/liveness/own_slot.h"

namespace lockstep::launch {

/// Finds the letter of a state in the text of a /proc/PID/stat; '?' where there is none. The
/// process's name before it may hold anything.
char state_in(std::string_view stat);

/// Finds a line's value in the text of a /proc/PID/status; empty where there is none.
std::string_view status_value(std::string_view status, std::string_view name);

/// Says whether a set of signals, as /proc/PID/status has it, holds this one.
bool holds_signal(std::string_view mask, int signal);

/// A process as /proc shows it.
class ProcessState {
 public:
  explicit ProcessState(pid_t process) : process_(process) {}

  /// Returns the state's letter: R, S, D, T (stopped), Z (ended), ...; '?' when it has gone.
  char letter() const;

  /// Says whether a debugger or tracer is attached.
  bool is_traced() const;

  /// Says whether the process has a handler for this signal.
  bool handles(int signal) const;

  /// Returns its threads, the first of which is the main one.
  std::vector<pid_t> threads() const;

  /// Returns in one line what the kernel tells of a thread: its state, the function of the kernel
  /// in which it waits, the system call.
  std::string thread_text(pid_t thread) const;

 private:
  pid_t process_;
};

/// The names of functions in an ELF file of 64 bits, exported or not; none for other or stripped
/// files.
class SymbolTable {
 public:
  explicit SymbolTable(const std::string& file);

  /// Finds the function at an address of the file; nothing if there is none. The name is the
  /// linker's.
  std::optional<std::string> at(std::uint64_t address) const;

 private:
  struct Function {
    std::uint64_t begin, end;
    std::size_t name;  // where it begins in names_
  };

  std::vector<Function> functions_;  // by their beginnings
  std::string names_;
};

/// One thread of a rank, and where it is.
struct ThreadStack {
  pid_t thread = 0;
  /// Names of functions, the innermost first; of a thread that did not answer one line of what
  /// /proc tells.
  std::vector<std::string> frames = {};
};

/// The tables of programs' files, which are read when they are first asked for.
using SymbolTables = std::map<std::string, SymbolTable>;

/// Asks each thread of a rank's process for its stack, the main one first, until the deadline. Of a
/// rank of Python it is the main thread's, in lines of Python; of a process that is stopped, or
/// cannot answer, the main thread's line of /proc alone.
std::vector<ThreadStack> ask_for_stacks(ProgressSlot& slot, pid_t process,
    std::chrono::steady_clock::time_point deadline, SymbolTables& tables);

/// Makes a line of glibc's backtrace_symbols_fd() readable: `at::native::add(...) in libtorch.so`,
/// `program+0x1234` of a function without a name.
std::string readable_frame(const std::string& line, SymbolTables& tables);

/// Parses the answers of threads, as own_slot.h describes them, and makes them readable.
std::vector<ThreadStack> parse_stacks(const std::string& text, SymbolTables& tables);

/// Parses what Python's faulthandler writes of all threads: the frames of the one that was asked.
std::vector<ThreadStack> parse_python_stack(const std::string& text, pid_t thread);

}  // namespace lockstep::launch
