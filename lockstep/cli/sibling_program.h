#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Finds a program that lies beside this one, as `lockstep-train`. Throws std::system_error that
/// begins with the verb when it is not there.
std::string sibling_program(const std::string& verb, const std::string& name);

/// Becomes that program, with the settings of the allocator that training wants; std::system_error
/// when it cannot be executed.
[[noreturn]] void become(
    const std::string& verb, const std::string& program, std::vector<std::string> arguments);

}  // namespace lockstep::cli
