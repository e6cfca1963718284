#pragma once

// Included by sources that are compiled for one instruction set each, as their kernels' headers.

namespace lockstep::nn {

/// The types in which images and activations may be stored; arithmetic is always fp32.
enum class Element { kFloat, kBFloat16 };

}  // namespace lockstep::nn
