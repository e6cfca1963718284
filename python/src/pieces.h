#pragma once

#include <cstdint>
#include <vector>

#include <torch/types.h>

namespace lockstep::python {

/// Returns a tensor of real numbers over the same memory, which is not Python's: any thread may let
/// it go, also while Python ends.
at::Tensor as_real(const at::Tensor& tensor);

/// Some tensors as one flat tensor: over their own memory where they lie one behind the other, else
/// over a copy.
class Pieces {
 public:
  /// All must be of one type and of as many elements each; `operation` is for the message.
  Pieces(const char* operation, const std::vector<at::Tensor>& tensors);

  const at::Tensor& whole() const { return whole_; }
  /// Copies the tensors' values to the whole.
  void gather() const;
  /// Copies the values of the whole to the tensors.
  void spread() const;

 private:
  std::vector<at::Tensor> tensors_;
  at::Tensor whole_;
  bool is_copy_ = false;
};

/// Returns the parts of a tensor along its first dimension, of these lengths; equal ones if there
/// are none.
std::vector<at::Tensor> parts_of(
    const at::Tensor& tensor, const std::vector<std::int64_t>& lengths, int count);

}  // namespace lockstep::python
