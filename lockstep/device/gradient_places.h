#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Memory in which gradients are to be computed, because they are needed there: the buckets of
/// DistributedDataParallel. A kernel that asks for it saves a copy; nobody has to.
///
/// Note [Gradients in their places]
/// Each place has a storage of its own, and each gradient in it is a tensor of its own on that
/// storage: so whoever still sees what is there, through a gradient that he kept or a view of it,
/// shows in the storage's count. A place is given away only while nobody does: not the parameter,
/// whose gradient may be there already, not a caller who keeps an earlier one, nor the first
/// gradient of a parameter that is used twice. And never to torch::autograd::grad, whose results
/// are its caller's.
class GradientPlaces {
 public:
  GradientPlaces() = default;
  GradientPlaces(const GradientPlaces&) = delete;
  GradientPlaces& operator=(const GradientPlaces&) = delete;

  /// Takes back its offers.
  ~GradientPlaces();

  /// Offers a place of the parameter's type and sizes instead of one offered before. The parameter
  /// must live at least as long as this.
  void offer(const at::Tensor& parameter, const at::Tensor& place);
};

/// Makes a place for a gradient of these sizes and strides, without holes: a stretch of
/// one-dimensional memory from an element on. It keeps the memory alive.
at::Tensor make_place(
    const at::Tensor& memory, std::int64_t element, at::IntArrayRef sizes, at::IntArrayRef strides);

/// Returns a gradient that lies in a place.
at::Tensor gradient_at(const at::Tensor& place);

/// Returns whether a place is in use: by a gradient there, or by a view of one.
bool is_seen(const at::Tensor& place);

/// Gives those who see what is in a place a copy of it, to which all their tensors then belong, so
/// that it may be used again.
void leave_to_those_who_see(at::Tensor& place);

/// Returns memory for the gradient of a parameter, not set, with its type, sizes and strides: the
/// place that was offered, or new memory. To be called in backward.
at::Tensor empty_gradient(const at::Tensor& parameter);

}  // namespace lockstep
