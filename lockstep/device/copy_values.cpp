#include "lockstep/device/copy_values.h"

#include <cstdint>
#include <cstring>

namespace lockstep {
namespace {

// LibTorch shares larger copies out to its threads.
constexpr std::int64_t kMostNumbers = 32768;

bool are_few_and_lie_alike(const at::Tensor& one, const at::Tensor& other) {
  return one.numel() > 0 && one.numel() <= kMostNumbers && is_plain(one) && is_plain(other) &&
         one.scalar_type() == other.scalar_type() && one.sizes() == other.sizes() &&
         one.strides() == other.strides() && one.is_non_overlapping_and_dense();
}

}  // namespace

bool is_plain(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided && !tensor.is_neg() &&
         !tensor.is_conj() && !tensor._is_zerotensor();
}

void copy_values(const at::Tensor& from, const at::Tensor& to) {
  if (are_few_and_lie_alike(from, to))
    std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
  else
    to.copy_(from);
}

}  // namespace lockstep
