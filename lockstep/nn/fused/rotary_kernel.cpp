#include "lockstep/nn/fused/rotary_kernel.h"

#include "lockstep/simd/vectors.h"

namespace lockstep::nn::fused {
namespace {

using simd::BFloat16;
using simd::Floats;
using simd::load;
using simd::store;

template <typename T>
inline void turn_places(const RotaryJob& shared, Range places) {
  const RotaryJob job = shared;  // a copy: the outputs could be it, for all that is known
  const std::int64_t size = 2 * job.half;
  for (std::int64_t place = places.begin; place < places.end; ++place) {
    const float* const cosines = job.cosines + place % job.length * job.half;
    const float* const sines = job.sines + place % job.length * job.half;
    const T* const inputs = static_cast<const T*>(job.inputs) + place * job.heads * size;
    T* const outputs = static_cast<T*>(job.outputs) + place * job.heads * size;
    simd::each_vector(job.half, [&](std::int64_t i, std::int64_t room) {
      const Floats cosine = load(cosines + i, room), angle = load(sines + i, room);
      const Floats sine = job.is_back ? -angle : angle;
      for (std::int64_t head = 0; head < job.heads; ++head) {
        const std::int64_t first = head * size + i, second = first + job.half;
        const Floats x = load(inputs + first, room), y = load(inputs + second, room);
        store(outputs + first, x * cosine - y * sine, room);
        store(outputs + second, y * cosine + x * sine, room);
      }
    });
  }
}

inline void rotary_turn(const RotaryJob& job, Range places) {
  job.element == Element::kFloat ? turn_places<float>(job, places)
                                 : turn_places<BFloat16>(job, places);
}

}  // namespace

const RotaryKernel& LOCKSTEP_BUILD(rotary)() {
  static constexpr RotaryKernel kKernel{.name = LOCKSTEP_BUILD_NAME, .turn = rotary_turn};
  return kKernel;
}

}  // namespace lockstep::nn::fused
