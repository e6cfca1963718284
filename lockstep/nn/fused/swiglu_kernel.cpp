#include "lockstep/nn/fused/swiglu_kernel.h"

#include "lockstep/nn/fused/activation_vectors.h"
#include "lockstep/simd/vectors.h"

namespace lockstep::nn::fused {
namespace {

using simd::BFloat16;
using simd::each_vector;
using simd::Floats;
using simd::load;
using simd::store;

template <typename T>
inline void gate_values(const SwigluJob& job, Range range) {
  const auto *gates = static_cast<const T*>(job.gates), *values = static_cast<const T*>(job.values);
  auto* const outputs = static_cast<T*>(job.outputs);
  each_vector(range.end - range.begin, [&](std::int64_t i, std::int64_t room) {
    const std::int64_t place = range.begin + i;
    const Floats gate = load(gates + place, room);
    store(outputs + place, gate * sigmoid(gate) * load(values + place, room), room);
  });
}

template <typename T>
inline void gate_gradients(const SwigluJob& job, Range range) {
  const auto *gates = static_cast<const T*>(job.gates), *values = static_cast<const T*>(job.values);
  const auto* const gradients = static_cast<const T*>(job.gradients);
  auto* const of_gates = static_cast<T*>(job.gate_gradients);
  auto* const of_values = static_cast<T*>(job.value_gradients);
  each_vector(range.end - range.begin, [&](std::int64_t i, std::int64_t room) {
    const std::int64_t place = range.begin + i;
    const Floats gate = load(gates + place, room), open = sigmoid(gate);
    const Floats gradient = load(gradients + place, room) * open;
    if (of_values != nullptr) store(of_values + place, gradient * gate, room);
    if (of_gates != nullptr)
      store(of_gates + place, gradient * load(values + place, room) * (1.0F + gate * (1.0F - open)),
          room);
  });
}

inline void swiglu_forward(const SwigluJob& job, Range range) {
  job.element == Element::kFloat ? gate_values<float>(job, range)
                                 : gate_values<BFloat16>(job, range);
}

inline void swiglu_backward(const SwigluJob& job, Range range) {
  job.element == Element::kFloat ? gate_gradients<float>(job, range)
                                 : gate_gradients<BFloat16>(job, range);
}

}  // namespace

const SwigluKernel& LOCKSTEP_BUILD(swiglu)() {
  static constexpr SwigluKernel kKernel{
      .name = LOCKSTEP_BUILD_NAME, .forward = swiglu_forward, .backward = swiglu_backward};
  return kKernel;
}

}  // namespace lockstep::nn::fused
