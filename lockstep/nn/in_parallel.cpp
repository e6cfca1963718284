#include "lockstep/nn/in_parallel.h"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>

#include "lockstep/device/host_tensor.h"

namespace lockstep::nn {

// LibTorch's loops over elements are compiled with its OpenMP: ours goes over bytes that are never
// touched, one for each index.
void in_parallel(std::int64_t count, c10::function_ref<void(Range range)> body) {
  if (count <= 0) return;
  // Making the loop takes as long as a small layer computes.
  if (count == 1 || at::get_num_threads() == 1) return body({0, count});
  auto bytes = at::empty({count}, on_host(at::kByte));
  const char* const first = static_cast<const char*>(bytes.const_data_ptr());
  auto loop = at::TensorIterator::nullary_op(bytes);
  loop.for_each(
      [&](char** data, const std::int64_t*, std::int64_t size, std::int64_t rows) {
        const std::int64_t begin = *data - first;
        body({begin, begin + size * rows});
      },
      1);
}

bool is_readable(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided && !tensor.is_neg() &&
         !tensor.is_conj() && !tensor._is_zerotensor() && !tensor._fw_grad(0).defined();
}

}  // namespace lockstep::nn
