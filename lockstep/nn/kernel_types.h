#pragma once

// What kernels and those who call them share. Kernels include it: see Note [Kernels per instruction
// set].

#include <cstdint>

namespace lockstep::nn {

/// The types in which images and activations may be stored; arithmetic is always fp32.
enum class Element { kFloat, kBFloat16 };

/// The numbers from `begin` to below `end`.
struct Range {
  std::int64_t begin, end;
};

}  // namespace lockstep::nn
