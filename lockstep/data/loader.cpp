#include "lockstep/data/loader.h"

#include <algorithm>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

// A view, such as the one that autograd keeps, has its own tensor but shares the storage.
bool is_ours_alone(const torch::Tensor& tensor) {
  return tensor.defined() && tensor.use_count() == 1 && tensor.has_storage() &&
         tensor.storage().use_count() == 1 && !tensor.requires_grad();
}

}  // namespace

Loader::Loader(
    data::InMemoryImages images,
    std::vector<std::int64_t> indices,
    std::int64_t batch_size,
    const LoaderOptions& options)
    : images_(std::move(images)),
      indices_(std::move(indices)),
      batch_size_(batch_size),
      dtype_(options.dtype),
      drop_last_(options.drop_last),
      scale_(images_.shape().channels, options.normalization) {
  check(batch_size > 0, "Loader: the batch size must be positive: ", batch_size);
  check(
      dtype_ == torch::kFloat || dtype_ == torch::kBFloat16,
      "Loader: the type must be float or bf16: ",
      dtype_);
}

std::int64_t Loader::size() const {
  const std::int64_t full = std::ssize(indices_) / batch_size_;
  const bool has_rest = !drop_last_ && std::ssize(indices_) % batch_size_ != 0;
  return full + (has_rest ? 1 : 0);
}

Loader::Iterator Loader::begin() const { return Iterator(*this); }

std::span<const std::int64_t> Loader::indices_of(std::int64_t batch) const {
  const std::int64_t start = batch * batch_size_;
  const std::int64_t count = std::min(batch_size_, std::ssize(indices_) - start);
  return std::span(indices_).subspan(
      static_cast<std::size_t>(start), static_cast<std::size_t>(count));
}

bool Loader::can_be_reused(const Batch& batch, std::int64_t size) const {
  return is_ours_alone(batch.data) && data::is_channels_last(batch.data, size, images_.shape()) &&
         batch.data.scalar_type() == dtype_ && is_ours_alone(batch.target) &&
         batch.target.sizes() == size && batch.target.is_contiguous() &&
         batch.target.scalar_type() == torch::kLong;
}

void Loader::gather_into(Batch& batch, std::int64_t number) const {
  const auto indices = indices_of(number);
  if (!can_be_reused(batch, std::ssize(indices))) {
    batch.data = data::empty_channels_last(std::ssize(indices), images_.shape(), dtype_);
    batch.target = torch::empty({std::ssize(indices)}, torch::TensorOptions().dtype(torch::kLong));
  }
  data::gather_images_into(batch.data, images_, indices, scale_);
  data::gather_labels_into(batch.target, images_, indices);
}

Loader::Iterator::Iterator(const Loader& loader) : loader_(&loader) {
  if (*this != std::default_sentinel) loader_->gather_into(batch_, number_);
}

Loader::Iterator& Loader::Iterator::operator++() {
  ++number_;
  if (*this != std::default_sentinel) loader_->gather_into(batch_, number_);
  return *this;
}

}  // namespace lockstep
