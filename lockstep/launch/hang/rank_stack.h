#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "lockstep/liveness/slot.h"

namespace lockstep::launch {

/// The names of functions in a program's file (ELF, 64 bits), also of those that it exports to
/// nobody. A file that is not like that, or was stripped, has none.
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
/// process that is stopped, or cannot answer, it is the main thread's line of /proc alone.
std::vector<ThreadStack> ask_for_stacks(ProgressSlot& slot, pid_t process,
    std::chrono::steady_clock::time_point deadline, SymbolTables& tables);

/// Makes a line of glibc's backtrace_symbols_fd() readable: `at::native::add(...) in libtorch.so`,
/// `program+0x1234` of a function without a name.
std::string readable_frame(const std::string& line, SymbolTables& tables);

/// Takes the answers of threads apart, as stack_answer.h describes them, and makes them readable.
std::vector<ThreadStack> parse_stacks(const std::string& text, SymbolTables& tables);

}  // namespace lockstep::launch
