#include "lockstep/data/batch.h"

#include <ATen/ops/empty_like.h>

#include "lockstep/data/gather.h"

namespace lockstep::data {
namespace {

// A view, such as the one that autograd keeps, has its own tensor but shares the storage.
bool is_ours_alone(const torch::Tensor& tensor) {
  return tensor.defined() && tensor.use_count() == 1 && tensor.has_storage() &&
         tensor.storage().use_count() == 1 && !tensor.requires_grad();
}

bool are_targets(const torch::Tensor& tensor, std::int64_t size) {
  return tensor.sizes() == size && tensor.is_contiguous() && tensor.scalar_type() == torch::kLong;
}

torch::Tensor pinned_if(const torch::Tensor& tensor, bool pinned) {
  return pinned ? at::empty_like(tensor, tensor.options().pinned_memory(true)) : tensor;
}

}  // namespace

Batch empty_batch(std::int64_t size, const BatchForm& form) {
  return {pinned_if(empty_images(size, form.shape, form.dtype, form.channels_last), form.pinned),
      pinned_if(torch::empty({size}, torch::TensorOptions().dtype(torch::kLong)), form.pinned)};
}

bool is_held_by_nobody_else(const Batch& batch) {
  return is_ours_alone(batch.data) && is_ours_alone(batch.target);
}

bool can_be_reused(const Batch& batch, std::int64_t size, const BatchForm& form) {
  // A device may still read pinned memory that nobody holds: LibTorch's allocator knows.
  return !form.pinned && is_held_by_nobody_else(batch) &&
         are_images(batch.data, size, form.shape, form.channels_last) &&
         batch.data.scalar_type() == form.dtype && are_targets(batch.target, size);
}

}  // namespace lockstep::data
