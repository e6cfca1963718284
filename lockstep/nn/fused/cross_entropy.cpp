#include "lockstep/nn/fused/cross_entropy.h"

#include <algorithm>

#include <ATen/ops/empty.h>

#include "lockstep/core/error.h"
#include "lockstep/nn/in_parallel.h"
#include "lockstep/nn/kernels.h"
#include "lockstep/simd/instructions.h"

namespace lockstep::nn::fused {
namespace {

void check_labels(
    std::span<const std::int64_t> labels, std::int64_t ignored, std::int64_t classes) {
  for (const std::int64_t label : labels)
    check(label == ignored || (label >= 0 && label < classes), "cross entropy: label ", label,
        " is none of ", classes, " classes");
}

}  // namespace

std::span<const CrossEntropyKernel* const> cross_entropy_kernels() {
  static const CrossEntropyKernel* const kBuilds[] = {
      &cross_entropy_plain(), &cross_entropy_avx2(), &cross_entropy_avx512()};
  return simd::usable(kBuilds);
}

bool is_cross_entropy_own(const at::Tensor& scores) {
  const bool is_known = scores.scalar_type() == at::kFloat || scores.scalar_type() == at::kBFloat16;
  return is_known && scores.dim() == 2 && scores.numel() > 0 && is_readable(scores) &&
         scores.is_contiguous();
}

at::Tensor own_cross_entropy(const CrossEntropyKernel& kernel, const at::Tensor& scores,
    const at::Tensor& labels, std::int64_t ignored, double smoothing) {
  const std::int64_t rows = scores.size(0), classes = scores.size(1);
  const at::Tensor known = labels.contiguous();
  check(known.scalar_type() == at::kLong && known.numel() == rows, "cross entropy: ", rows,
      " rows of scores need as many int64 labels, not ", known.scalar_type(), " ", known.sizes());
  const auto* const first = known.const_data_ptr<std::int64_t>();
  check_labels({first, static_cast<std::size_t>(rows)}, ignored, classes);
  scores.unsafeGetTensorImpl()->bump_version();  // a backward that saved them must not go on
  at::Tensor losses = at::empty({rows}, scores.options().dtype(at::kFloat));
  const bool is_float = scores.scalar_type() == at::kFloat;
  const CrossEntropyJob job{.element = is_float ? Element::kFloat : Element::kBFloat16,
      .scores = scores.mutable_data_ptr(),
      .classes = classes,
      .labels = first,
      .ignored = ignored,
      .smoothing = static_cast<float>(smoothing),
      .losses = losses.mutable_data_ptr<float>()};
  in_parallel(rows, [&](Range range) { kernel.replace(job, range); });
  return losses;
}

}  // namespace lockstep::nn::fused
