#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::cli {

/// Returns the folder of this program. Throws std::system_error where /proc does not tell it.
std::filesystem::path own_folder(const std::string& verb);

/// Returns the path of a program that lies beside this one, as `lockstep-train`. Throws
/// std::system_error that says how to build it when it is missing.
std::string sibling_program(const std::string& verb, const std::string& name);

/// The allocator of a program's memory: glibc's usual one, or one that suits many large tensors.
enum class Allocator { kUsual, kForTensors };

/// Becomes that program; std::system_error when it cannot be executed.
[[noreturn]] void become(const std::string& verb, const std::string& program,
    std::vector<std::string> arguments, Allocator allocator = Allocator::kUsual);

}  // namespace lockstep::cli
