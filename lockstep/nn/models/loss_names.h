#pragma once

// Without LibTorch: the command lists them before it loads any.

#include <string>
#include <vector>

namespace lockstep::nn {

inline constexpr const char* kCrossEntropy = "cross-entropy";
inline constexpr const char* kMeanSquaredError = "mse";  ///< of scores and one-hot labels

/// Returns the names of the losses that need no plugin.
inline std::vector<std::string> loss_names() { return {kCrossEntropy, kMeanSquaredError}; }

}  // namespace lockstep::nn
