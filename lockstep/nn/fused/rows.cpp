#include "lockstep/nn/fused/rows.h"

#include <algorithm>

#include <ATen/ops/zeros.h>

#include "lockstep/device/host_tensor.h"
#include "lockstep/nn/in_parallel.h"

namespace lockstep::nn::fused {

bool has_stored_type(const at::Tensor& values) {
  return values.scalar_type() == at::kFloat || values.scalar_type() == at::kBFloat16;
}

Element stored_element(const at::Tensor& values) {
  return values.scalar_type() == at::kFloat ? Element::kFloat : Element::kBFloat16;
}

at::Tensor sums_over_rows(
    std::int64_t rows, std::int64_t count, c10::function_ref<void(Range rows, float* sums)> body) {
  constexpr std::int64_t kFewestRows = 64, kMostParts = 32;
  const std::int64_t parts = std::clamp<std::int64_t>(rows / kFewestRows, 1, kMostParts);
  auto all = at::zeros({parts, count}, on_host(at::kFloat));
  auto* const sums = all.mutable_data_ptr<float>();
  in_parallel(parts, [&](Range range) {
    for (std::int64_t part = range.begin; part < range.end; ++part)
      body({rows * part / parts, rows * (part + 1) / parts}, sums + part * count);
  });
  for (std::int64_t part = 1; part < parts; ++part)
    for (std::int64_t i = 0; i < count; ++i) sums[i] += sums[part * count + i];
  return all.select(0, 0);
}

}  // namespace lockstep::nn::fused
