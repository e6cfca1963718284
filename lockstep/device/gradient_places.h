#pragma once

#include <cstdint>
#include <utility>

#include <ATen/core/Tensor.h>

namespace lockstep {

/// The memory in which a parameter's gradient is to lie, because it is needed there: a stretch of a
/// bucket of DistributedDataParallel. A kernel that computes the gradient there saves a copy; none
/// has to.
///
/// Note [Gradients in their places]
/// The memory belongs to the place. Each place has a storage of its own, and each gradient in it is
/// a tensor of its own on that storage: so the storage's use count shows whether a gradient that a
/// caller kept, or a view of one, still uses it. A place is given away only while nothing does: not
/// the parameter, whose gradient may be there already, not a gradient that a caller keeps from an
/// earlier pass, nor the first gradient of a parameter that is used twice. And never to
/// torch::autograd::grad, whose results are its caller's.
class GradientPlace {
 public:
  GradientPlace() = default;

  /// Takes a tensor with a storage of its own.
  explicit GradientPlace(at::Tensor memory) : memory_(std::move(memory)) {}

  /// Makes a place for a gradient of these sizes and strides, without holes: a stretch of
  /// one-dimensional memory from an element on. It keeps the memory alive.
  GradientPlace(const at::Tensor& memory, std::int64_t element, at::IntArrayRef sizes,
      at::IntArrayRef strides);

  /// Takes back its offer.
  ~GradientPlace();
  GradientPlace(GradientPlace&& other) noexcept { *this = std::move(other); }
  GradientPlace& operator=(GradientPlace&& other) noexcept;

  /// Offers itself for the gradient of a parameter of its type and sizes, instead of a place that
  /// was offered before. The parameter must live at least as long as this.
  void offer_to(const at::Tensor& parameter);

  const at::Tensor& memory() const { return memory_; }

  /// Returns a gradient that lies here.
  at::Tensor gradient() const;

  /// Returns whether a gradient lies here.
  bool has(const at::Tensor& gradient) const;

  /// Makes a gradient lie here; the tensor stays the same.
  void take_in(at::Tensor& gradient) const;

  /// Returns whether the place is in use: by a gradient here, or by a view of one.
  bool is_seen() const;

  /// Moves the values to a copy, to which all other tensors on this storage then belong, so that
  /// the place can be used again.
  void leave_to_those_who_see();

 private:
  at::Tensor memory_;
  const at::TensorImpl* parameter_ = nullptr;  // to which it is offered
};

/// Returns whether a place was offered for a parameter's gradient.
bool is_offered_place(const at::Tensor& parameter);

/// Returns memory for the gradient of a parameter, not set, with its type, sizes and strides: the
/// place that was offered, or new memory. To be called in backward.
at::Tensor empty_gradient(const at::Tensor& parameter);

}  // namespace lockstep
