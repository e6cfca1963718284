#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

/// Evaluates weights, in the program that has LibTorch; `lockstep eval` starts it. Returns its exit
/// code.
int eval_main(const std::vector<std::string>& arguments);

}  // namespace lockstep::cli
