#pragma once

#include <unordered_map>

#include <ATen/core/Tensor.h>

namespace lockstep {

/// Memory in which gradients are to be computed, because they are needed there: the buckets of
/// DistributedDataParallel. A kernel that asks for it saves a copy; nobody has to.
///
/// Note [Gradients in their places]
/// A place is given away once until the offers are renewed, so that a parameter which is used twice
/// has its second gradient elsewhere, to be added. Nor is it given away while the parameter has a
/// gradient, which may be there already, or by torch::autograd::grad, whose results are its
/// caller's.
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

  /// Lets each place be given away again.
  void renew();

 private:
  std::unordered_map<const at::TensorImpl*, at::Tensor> places_;
};

/// Returns memory for the gradient of a parameter, not set, with its type, sizes and strides: the
/// place that was offered, or new memory. To be called in backward.
at::Tensor empty_gradient(const at::Tensor& parameter);

}  // namespace lockstep
