#pragma once

#include <string>

namespace lockstep::launch {

/// Finds the file that a program's name means: a name with a slash is a path; one without is looked
/// up in the folders of `search_path` (as PATH), then in the current directory.
///
/// Throws InvalidArgument that names the program when there is none, or when it cannot be executed.
std::string find_program(const std::string& name, const std::string& search_path);

}  // namespace lockstep::launch
