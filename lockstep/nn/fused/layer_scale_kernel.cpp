#include "lockstep/nn/fused/layer_scale_kernel.h"

#include "lockstep/nn/fused/rows_in_fours.h"

namespace lockstep::nn::fused {
namespace {

using simd::each_vector;
using simd::Floats;
using simd::load;

template <typename T>
inline void scale_forward(const LayerScaleJob& job, Range rows) {
  const std::int64_t width = job.width;
  const float* const scale = job.scale;
  in_fours(rows.end - rows.begin, [&]<int kRows>(std::int64_t row) {
    const std::int64_t first = (rows.begin + row) * width;
    const T* const inputs = static_cast<const T*>(job.inputs) + first;
    const float* const residuals = job.residuals + first;
    float* const outputs = job.outputs + first;
    each_vector(width, [&](std::int64_t place, std::int64_t room) {
      const Floats factor = load(scale + place, room);
      Floats values[kRows];
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) {
        const std::int64_t at = i * width + place;
        values[i] = load(inputs + at, room) * factor + load(residuals + at, room);
      }
      store_rows(values, outputs + place, width, room);
    });
  });
}

template <typename T, bool kOfInputs, bool kOfScale>
inline void scale_backward(const LayerScaleGradientJob& job, Range rows, float* sums) {
  const std::int64_t width = job.width;
  const float* const scale = job.scale;
  in_fours(rows.end - rows.begin, [&]<int kRows>(std::int64_t row) {
    const std::int64_t first = (rows.begin + row) * width;
    const T* const inputs = static_cast<const T*>(job.inputs) + first;
    const float* const gradients = job.gradients + first;
    T* const results = kOfInputs ? static_cast<T*>(job.input_gradients) + first : nullptr;
    each_vector(width, [&](std::int64_t place, std::int64_t room) {
      const Floats factor = load(scale + place, room);
      Floats values[kRows], sum = {};
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) {
        const std::int64_t at = i * width + place;
        const Floats gradient = load(gradients + at, room);
        if constexpr (kOfScale) sum += gradient * load(inputs + at, room);
        values[i] = gradient * factor;
      }
      if constexpr (kOfScale) add_to(sums + place, sum, room);
      if constexpr (kOfInputs) store_rows(values, results + place, width, room);
    });
  });
}

template <typename T>
inline void scale_backward_in(const LayerScaleGradientJob& job, Range rows, float* sums) {
  if (job.input_gradients == nullptr) return scale_backward<T, false, true>(job, rows, sums);
  sums == nullptr ? scale_backward<T, true, false>(job, rows, sums)
                  : scale_backward<T, true, true>(job, rows, sums);
}

inline void layer_scale_forward(const LayerScaleJob& job, Range rows) {
  job.element == Element::kFloat ? scale_forward<float>(job, rows)
                                 : scale_forward<simd::BFloat16>(job, rows);
}

inline void layer_scale_backward(const LayerScaleGradientJob& job, Range rows, float* sums) {
  job.element == Element::kFloat ? scale_backward_in<float>(job, rows, sums)
                                 : scale_backward_in<simd::BFloat16>(job, rows, sums);
}

}  // namespace

const LayerScaleKernel& LOCKSTEP_BUILD(layer_scale)() {
  static constexpr LayerScaleKernel kKernel{.name = LOCKSTEP_BUILD_NAME,
      .forward = layer_scale_forward,
      .backward = layer_scale_backward};
  return kKernel;
}

}  // namespace lockstep::nn::fused
