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
inline GeluShare gelu_share(Floats x) {
  constexpr float kTwice = 2 * 0.79788456F, kCubed = 0.044715F;
  const Floats square = x * x;
  const Floats share = 1.0F / (1.0F + exponential(x * (square * kCubed + 1.0F) * -kTwice));
  return {share, share * (1.0F - share) * (square * (3 * kCubed) + 1.0F) * kTwice};
}

inline void gelu_forward(const float* inputs, Range range, float* outputs) {
  each_vector(range.end - range.begin, [&](std::int64_t place, std::int64_t room) {
    const Floats x = load(inputs + range.begin + place, room);
    store(outputs + range.begin + place, x * gelu_share(x).share, room);
  });
}

inline void gelu_backward(
    const float* inputs, const float* gradients, Range range, float* input_gradients) {
  each_vector(range.end - range.begin, [&](std::int64_t place, std::int64_t room) {
    const Floats x = load(inputs + range.begin + place, room);
    const GeluShare found = gelu_share(x);
    store(input_gradients + range.begin + place,
        load(gradients + range.begin + place, room) * (found.share + x * found.slope), room);
  });
}

}  // namespace

const GeluKernel& LOCKSTEP_BUILD(gelu)() {
  static constexpr GeluKernel kKernel{
      .name = LOCKSTEP_BUILD_NAME, .forward = gelu_forward, .backward = gelu_backward};
  return kKernel;
}

}  // namespace lockstep::nn::fused
