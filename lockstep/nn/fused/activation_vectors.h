#pragma once

// For kernels, as simd/vectors.h is.

#include "lockstep/nn/fused/batch_norm_kernel.h"
#include "lockstep/simd/exponential.h"

namespace lockstep::nn::fused {
namespace {

// A NaN stays one, and its gradient passes, as in LibTorch.
inline simd::Floats where_positive(simd::Floats output, simd::Floats value) {
  return output <= 0.0F ? simd::Floats{} : value;
}

inline simd::Floats sigmoid(simd::Floats value) {
  return 1.0F / (1.0F + simd::exponential(-value));
}

template <Activation kActivation>
inline simd::Floats activated(simd::Floats value) {
  if constexpr (kActivation == Activation::kRelu) return where_positive(value, value);
  if constexpr (kActivation == Activation::kSilu) return value * sigmoid(value);
  if constexpr (kActivation == Activation::kHardswish) {
    const simd::Floats raised = where_positive(value + 3.0F, value + 3.0F);
    return value * (raised > 6.0F ? simd::all(6) : raised) * (1.0F / 6.0F);
  }
  return value;
}

// The gradient of the value that the activation saw.
template <Activation kActivation>
inline simd::Floats passed_back(simd::Floats value, simd::Floats gradient) {
  if constexpr (kActivation == Activation::kRelu) return where_positive(value, gradient);
  if constexpr (kActivation == Activation::kSilu) {
    const simd::Floats gate = sigmoid(value);
    return gradient * gate * (1.0F + value * (1.0F - gate));
  }
  if constexpr (kActivation == Activation::kHardswish) {
    const simd::Floats rising = value < 3.0F ? gradient * (value * (1.0F / 3.0F) + 0.5F) : gradient;
    return where_positive(value + 3.0F, rising);
  }
  return gradient;
}

template <Activation kActivation>
struct Constant {
  static constexpr Activation kValue = kActivation;
};

// Calls body with the activation as a type.
template <typename Body>
inline void with_activation(Activation activation, const Body& body) {
  switch (activation) {
    case Activation::kNone:
      return body(Constant<Activation::kNone>{});
    case Activation::kRelu:
      return body(Constant<Activation::kRelu>{});
    case Activation::kSilu:
      return body(Constant<Activation::kSilu>{});
    case Activation::kHardswish:
      return body(Constant<Activation::kHardswish>{});
  }
}

}  // namespace
}  // namespace lockstep::nn::fused
