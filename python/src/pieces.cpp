#include "pieces.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "lockstep/core/error.h"

namespace lockstep::python {
namespace {

bool lie_in_a_row(const std::vector<at::Tensor>& tensors) {
  const at::Tensor& first = tensors.front();
  std::int64_t offset = first.storage_offset();
  return std::ranges::all_of(tensors, [&](const at::Tensor& tensor) {
    const bool follows = tensor.is_contiguous() && !tensor.is_neg() &&
                         tensor.storage().is_alias_of(first.storage()) &&
                         tensor.storage_offset() == offset;
    offset += tensor.numel();
    return follows;
  });
}

// In LibTorch a large copy would have threads of its own in each thread that calls it.
void copy_values(const at::Tensor& to, const at::Tensor& from) {
  const auto is_plain = [](const at::Tensor& tensor) {
    return tensor.is_contiguous() && !tensor.is_neg();
  };
  if (is_plain(to) && is_plain(from)) {
    if (from.numel() > 0) std::memcpy(to.data_ptr(), from.data_ptr(), from.nbytes());
  } else {
    to.view(from.sizes()).copy_(from);
  }
}

}  // namespace

at::Tensor as_real(const at::Tensor& tensor) {
  const at::Tensor own = tensor.detach();
  return own.is_complex() ? at::view_as_real(own) : own;
}

Pieces::Pieces(const char* operation, const std::vector<at::Tensor>& tensors) {
  check(!tensors.empty(), operation, ": the list of tensors is empty");
  for (const at::Tensor& tensor : tensors) {
    tensors_.push_back(as_real(tensor));
    const at::Tensor& first = tensors_.front();
    check(tensors_.back().scalar_type() == first.scalar_type() &&
              tensors_.back().numel() == first.numel(),
        operation, ": the tensors of the list must be alike, but one is of ", tensor.sizes(),
        " and ", c10::toString(tensor.scalar_type()), ", the first of ", tensors.front().sizes(),
        " and ", c10::toString(tensors.front().scalar_type()));
  }
  const at::Tensor& first = tensors_.front();
  const auto elements = first.numel() * static_cast<std::int64_t>(tensors.size());
  is_copy_ = !lie_in_a_row(tensors_);
  whole_ = is_copy_ ? at::empty({elements}, first.options()) : first.as_strided({elements}, {1});
}

void Pieces::gather() const {
  if (!is_copy_) return;
  const at::Tensor rows = whole_.view({static_cast<std::int64_t>(tensors_.size()), -1});
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    copy_values(rows[static_cast<std::int64_t>(i)].view(tensors_[i].sizes()), tensors_[i]);
}

void Pieces::spread() const {
  if (!is_copy_) return;
  const at::Tensor rows = whole_.view({static_cast<std::int64_t>(tensors_.size()), -1});
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    copy_values(tensors_[i], rows[static_cast<std::int64_t>(i)].view(tensors_[i].sizes()));
}

std::vector<at::Tensor> parts_of(
    const at::Tensor& tensor, const std::vector<std::int64_t>& lengths, int count) {
  const std::int64_t length = tensor.dim() == 0 ? 1 : tensor.size(0);
  check(!lengths.empty() || length % count == 0, "all_to_all: ", count, " ranks do not divide the ",
      length, " rows of the tensor; give the sizes of the parts");
  check(lengths.empty() || (static_cast<int>(lengths.size()) == count &&
                               std::reduce(lengths.begin(), lengths.end()) == length),
      "all_to_all: the sizes of the parts must be ", count, ", and add up to the ", length,
      " rows of the tensor");
  const std::vector<std::int64_t> equal(static_cast<std::size_t>(count), length / count);
  const at::Tensor rows = tensor.dim() == 0 ? tensor.unsqueeze(0) : tensor;
  return rows.split_with_sizes(lengths.empty() ? equal : lengths);
}

}  // namespace lockstep::python
