#include "lockstep/nn/fused/gelu_kernel.h"

#include "lockstep/simd/exponential.h"

namespace lockstep::nn::fused {
namespace {

using simd::each_vector;
using simd::exponential;
using simd::Floats;
using simd::load;
using simd::store;

/// The factor s(x) of gelu(x) = x s(x), and its derivative.
struct GeluShare {
  Floats share, slope;
};

// (1 + tanh u) / 2 = 1 / (1 + e^-2u), where u = sqrt(2 / pi) (x + 0.044715 x^3).
inline GeluShare share_by_tanh(Floats x) {
  constexpr float kTwice = 2 * 0.79788456F, kCubed = 0.044715F;
  const Floats square = x * x;
  const Floats share = 1.0F / (1.0F + exponential(x * (square * kCubed + 1.0F) * -kTwice));
  return {share, share * (1.0F - share) * (square * (3 * kCubed) + 1.0F) * kTwice};
}

// The normal distribution up to x, and its density, which share e^(-x^2 / 2): beyond |x| there lies
// half of that times a polynomial in 1 / (1 + 0.327... |x| / sqrt 2), within 1e-7 (Abramowitz and
// Stegun, 7.1.26).
inline GeluShare exact_share(Floats x) {
  const Floats size = x < 0.0F ? -x : x;
  const Floats density = exponential(x * x * -0.5F);
  const Floats near = 1.0F / (1.0F + size * (0.3275911F * 0.70710678F));
  Floats sum = near * 1.061405429F - 1.453152027F;
  constexpr float kFurther[] = {1.421413741F, -0.284496736F, 0.254829592F};
  for (const float next : kFurther) sum = sum * near + next;
  const Floats beyond = sum * near * density * 0.5F;
  return {x < 0.0F ? beyond : 1.0F - beyond, density * 0.39894228F};
}

template <GeluForm kForm>
inline GeluShare gelu_share(Floats x) {
  return kForm == GeluForm::kTanh ? share_by_tanh(x) : exact_share(x);
}

template <GeluForm kForm, typename T>
inline void forward_of(const GeluJob& job, Range range) {
  const T* const inputs = static_cast<const T*>(job.inputs) + range.begin;
  T* const outputs = static_cast<T*>(job.outputs) + range.begin;
  each_vector(range.end - range.begin, [&](std::int64_t place, std::int64_t room) {
    const Floats x = load(inputs + place, room);
    store(outputs + place, x * gelu_share<kForm>(x).share, room);
  });
}

template <GeluForm kForm, typename T>
inline void backward_of(const GeluJob& job, Range range) {
  const T* const inputs = static_cast<const T*>(job.inputs) + range.begin;
  const T* const gradients = static_cast<const T*>(job.gradients) + range.begin;
  T* const results = static_cast<T*>(job.input_gradients) + range.begin;
  each_vector(range.end - range.begin, [&](std::int64_t place, std::int64_t room) {
    const Floats x = load(inputs + place, room);
    const GeluShare found = gelu_share<kForm>(x);
    store(results + place, load(gradients + place, room) * (found.share + x * found.slope), room);
  });
}

template <GeluForm kForm>
inline void forward_in(const GeluJob& job, Range range) {
  job.element == Element::kFloat ? forward_of<kForm, float>(job, range)
                                 : forward_of<kForm, simd::BFloat16>(job, range);
}

template <GeluForm kForm>
inline void backward_in(const GeluJob& job, Range range) {
  job.element == Element::kFloat ? backward_of<kForm, float>(job, range)
                                 : backward_of<kForm, simd::BFloat16>(job, range);
}

inline void gelu_forward(const GeluJob& job, Range range) {
  job.form == GeluForm::kTanh ? forward_in<GeluForm::kTanh>(job, range)
                              : forward_in<GeluForm::kExact>(job, range);
}

inline void gelu_backward(const GeluJob& job, Range range) {
  job.form == GeluForm::kTanh ? backward_in<GeluForm::kTanh>(job, range)
                              : backward_in<GeluForm::kExact>(job, range);
}

}  // namespace

const GeluKernel& LOCKSTEP_BUILD(gelu)() {
  static constexpr GeluKernel kKernel{
      .name = LOCKSTEP_BUILD_NAME, .forward = gelu_forward, .backward = gelu_backward};
  return kKernel;
}

}  // namespace lockstep::nn::fused
