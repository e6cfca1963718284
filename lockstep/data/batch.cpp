#include "lockstep/data/batch.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include <ATen/ops/empty_like.h>

#include "lockstep/core/error.h"
#include "lockstep/data/gather.h"

namespace lockstep {

std::vector<torch::Tensor> Batch::input_tensors() const {
  std::vector<torch::Tensor> tensors;
  for (const NamedTensor& input : inputs) tensors.push_back(input.tensor);
  return tensors;
}

namespace data {
namespace {

// A view, such as the one that autograd keeps, has its own tensor but shares the storage.
bool is_ours_alone(const torch::Tensor& tensor) {
  return tensor.defined() && tensor.use_count() == 1 && tensor.has_storage() &&
         tensor.storage().use_count() == 1 && !tensor.requires_grad();
}

bool are_rows(const torch::Tensor& tensor, torch::IntArrayRef sizes, torch::ScalarType type) {
  return tensor.defined() && tensor.device().is_cpu() && tensor.sizes() == sizes &&
         tensor.is_contiguous() && tensor.scalar_type() == type;
}

torch::Tensor pinned_if(const torch::Tensor& tensor, bool pinned) {
  return pinned ? at::empty_like(tensor, tensor.options().pinned_memory(true)) : tensor;
}

std::vector<std::int64_t> row_sizes(std::int64_t batch, const InputForm& input) {
  std::vector<std::int64_t> sizes{batch};
  sizes.insert(sizes.end(), input.sizes.begin(), input.sizes.end());
  return sizes;
}

torch::ScalarType type_of(const InputForm& input, const BatchForm& form) {
  return input.type == torch::kFloat ? form.dtype : input.type;
}

bool has_named_inputs(const Batch& batch, std::int64_t size, const BatchForm& form) {
  return std::ranges::equal(
      batch.inputs, form.inputs, [&](const NamedTensor& own, const InputForm& input) {
        return are_rows(own.tensor, row_sizes(size, input), type_of(input, form));
      });
}

}  // namespace

std::int64_t InputForm::elements() const {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

std::string InputForm::text() const {
  return concat(name, " ", torch::IntArrayRef(sizes), type == torch::kLong ? " int64" : " float");
}

Batch empty_batch(std::int64_t size, const BatchForm& form) {
  const auto rows = [&](torch::IntArrayRef sizes, torch::ScalarType type) {
    return pinned_if(torch::empty(sizes, torch::TensorOptions().dtype(type)), form.pinned);
  };
  if (form.inputs.empty()) {
    auto images = empty_images(size, form.shape, form.dtype, form.channels_last);
    return {pinned_if(images, form.pinned), rows({size}, torch::kLong)};
  }
  Batch batch;
  for (const InputForm& input : form.inputs)
    batch.inputs.push_back({input.name, rows(row_sizes(size, input), type_of(input, form))});
  batch.targets.push_back({"target", rows({size}, torch::kLong)});
  return batch;
}

bool has_form(const Batch& batch, std::int64_t size, const BatchForm& form) {
  if (batch.targets.size() != 1 || !are_rows(batch.target(), {size}, torch::kLong)) return false;
  if (!form.inputs.empty()) return has_named_inputs(batch, size, form);
  return batch.inputs.size() == 1 && batch.input().scalar_type() == form.dtype &&
         are_images(batch.input(), size, form.shape, form.channels_last);
}

bool is_held_by_nobody_else(const Batch& batch) {
  const auto is_alone = [](const NamedTensor& each) { return is_ours_alone(each.tensor); };
  return !batch.is_empty() && std::ranges::all_of(batch.inputs, is_alone) &&
         std::ranges::all_of(batch.targets, is_alone);
}

bool can_be_reused(const Batch& batch, std::int64_t size, const BatchForm& form) {
  // A device may still read pinned memory that nobody holds: LibTorch's allocator knows.
  return !form.pinned && is_held_by_nobody_else(batch) && has_form(batch, size, form);
}

}  // namespace data
}  // namespace lockstep
