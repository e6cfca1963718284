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

/// The settings of allocator and OpenMP that a program finds: the usual ones, or, where the user
/// has set none, those that suit tensors.
enum class Settings { kUsual, kForTensors };

/// Becomes that program; std::system_error when it cannot be executed.
[[noreturn]] void become(const std::string& verb, const std::string& program,
    std::vector<std::string> arguments, Settings settings = Settings::kUsual);

}  // namespace lockstep::cli
