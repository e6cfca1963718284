#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

// What lockstep-train does for verbs of `lockstep`, which links no LibTorch. All return the exit
// code.

/// Evaluates weights, as the words after `lockstep eval` say.
int eval_main(const std::vector<std::string>& arguments);

/// Samples from a language model, as the words after `lockstep sample` say.
int sample_main(const std::vector<std::string>& arguments);

/// By this first word `lockstep data show` hands its arguments to `lockstep-train`.
inline constexpr const char* kShowData = "--show-data";

/// Makes the contact sheet that the arguments after the first ask for.
int show_data(const std::vector<std::string>& arguments);

/// Tries all accelerators of a type, or of the type that is found for "auto", and prints what
/// works, for `lockstep env --check-devices`.
int check_all_devices(const std::string& type);

}  // namespace lockstep::cli
