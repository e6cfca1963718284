#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// By this first word `lockstep data show` hands its arguments to `lockstep-train`.
inline constexpr const char* kShowData = "--show-data";

/// Makes the contact sheet that the arguments after the first ask for. Returns the exit code.
int show_data(const std::vector<std::string>& arguments);

}  // namespace lockstep::cli
