#include "lockstep/device/gradient_places.h"

#include <cstddef>
#include <mutex>
#include <unordered_map>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <torch/csrc/autograd/graph_task.h>

#include "lockstep/device/copy_values.h"

namespace lockstep {
namespace {

// Of the process: what computes a gradient knows its parameter alone.
struct Offers {
  std::mutex mutex;
  std::unordered_map<const at::TensorImpl*, at::Tensor> places;
};

Offers& offers() {
  static Offers* const kOffers = new Offers;  // outlives models in static storage
  return *kOffers;
}

bool is_seen(const at::Tensor& place) { return place.storage().use_count() > 1; }

at::Tensor gradient_at(const at::Tensor& place) {
  return at::empty({0}, place.options())
      .set_(place.storage(), place.storage_offset(), place.sizes(), place.strides());
}

// Names the inputs of torch::autograd::grad, and nothing in a backward.
bool is_for_caller() {
  const auto* const asked = torch::autograd::get_current_graph_task_exec_info();
  return asked != nullptr && !asked->empty();
}

at::Tensor take_place(const at::Tensor& parameter) {
  Offers& known = offers();
  const std::lock_guard lock(known.mutex);
  const auto found = known.places.find(parameter.unsafeGetTensorImpl());
  if (found == known.places.end() || is_seen(found->second)) return {};
  return gradient_at(found->second);
}

}  // namespace

// Not a view for autograd: zero_grad(false) detaches gradients in place, which views refuse.
GradientPlace::GradientPlace(const at::Tensor& memory, std::int64_t element, at::IntArrayRef sizes,
    at::IntArrayRef strides) {
  auto* const data = static_cast<std::byte*>(memory.mutable_data_ptr()) +
                     element * static_cast<std::int64_t>(memory.itemsize());
  memory_ = at::from_blob(
      data, sizes, strides, [memory](void*) {}, memory.options(), memory.device());
}

GradientPlace::~GradientPlace() {
  if (parameter_ == nullptr) return;
  const std::lock_guard lock(offers().mutex);
  const auto found = offers().places.find(parameter_);
  const bool is_mine = found != offers().places.end() && found->second.is_same(memory_);
  if (is_mine) offers().places.erase(found);
}

GradientPlace& GradientPlace::operator=(GradientPlace&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(parameter_, other.parameter_);
  return *this;
}

void GradientPlace::offer_to(const at::Tensor& parameter) {
  const std::lock_guard lock(offers().mutex);
  parameter_ = parameter.unsafeGetTensorImpl();
  offers().places[parameter_] = memory_;
}

at::Tensor GradientPlace::gradient() const { return gradient_at(memory_); }

bool GradientPlace::has(const at::Tensor& gradient) const {
  return gradient.defined() && gradient.layout() == at::kStrided &&
         gradient.data_ptr() == memory_.data_ptr() && gradient.strides() == memory_.strides() &&
         gradient.sizes() == memory_.sizes();
}

// Whoever holds the tensor has the parameter's gradient, as without a wrapper.
void GradientPlace::take_in(at::Tensor& gradient) const {
  copy_values(gradient, memory_);
  gradient.set_data(memory_);  // frees the memory that the gradient came in
}

bool GradientPlace::is_seen() const { return lockstep::is_seen(memory_); }

// The storages exchange their memory, so that tensors of others need not be known.
void GradientPlace::leave_to_those_who_see() {
  const at::NoGradGuard no_grad;
  at::Tensor copy = memory_.clone();
  auto* const theirs = memory_.storage().unsafeGetStorageImpl();
  auto* const ours = copy.storage().unsafeGetStorageImpl();
  c10::DataPtr copied = ours->set_data_ptr({});
  ours->set_data_ptr(theirs->set_data_ptr(std::move(copied)));
  const std::lock_guard lock(offers().mutex);
  const auto found = offers().places.find(parameter_);
  if (found != offers().places.end() && found->second.is_same(memory_)) found->second = copy;
  memory_ = std::move(copy);
}

bool is_offered_place(const at::Tensor& parameter) {
  const std::lock_guard lock(offers().mutex);
  return offers().places.contains(parameter.unsafeGetTensorImpl());
}

// A tensor of its own, for autograd keeps a gradient only if nobody else holds it.
at::Tensor empty_gradient(const at::Tensor& parameter) {
  const bool fits = parameter.is_leaf() && !parameter.grad().defined() && !is_for_caller();
  const at::Tensor gradient = fits ? take_place(parameter) : at::Tensor();
  const bool is_laid_out_alike = gradient.defined() && gradient.strides() == parameter.strides();
  return is_laid_out_alike ? gradient : at::empty_like(parameter);
}

}  // namespace lockstep
