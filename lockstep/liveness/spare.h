#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// The variable by which a launcher of ours tells a process that it is a spare: the number of the
/// descriptor, the reading end of a pipe, from which its rank will come.
inline constexpr const char* kSpareVariable = "LOCKSTEP_SPARE";

/// Variables of an environment by name; an empty value unsets one.
using Variables = std::vector<std::pair<std::string, std::string>>;

/// Waits, in a process that a launcher has started ahead as a spare, until it is needed as a rank,
/// and takes that rank's variables. A spare that is not needed ends here, with code 0. In every
/// other process this returns at once.
///
/// init_process_group() calls it. Call it yourself, while the process has one thread, where your
/// program reads a rank's variables before that. Throws std::system_error when the pipe cannot be
/// read.
void wait_if_spare();

/// Writes variables as a spare reads them, and reads them: DataError for anything else.
std::string variables_text(const Variables& variables);
Variables parse_variables(const std::string& text);

}  // namespace lockstep
