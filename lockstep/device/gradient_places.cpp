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

namespace lockstep {
namespace {

struct Offer {
  const GradientPlaces* owner = nullptr;
  at::Tensor place;
};

// Of the process: what computes a gradient knows its parameter alone.
struct Offers {
  std::mutex mutex;
  std::unordered_map<const at::TensorImpl*, Offer> all;
};

Offers& offers() {
  static Offers* const kOffers = new Offers;  // outlives models in static storage
  return *kOffers;
}

// Names the inputs of torch::autograd::grad, and nothing in a backward.
bool is_for_caller() {
  const auto* const asked = torch::autograd::get_current_graph_task_exec_info();
  return asked != nullptr && !asked->empty();
}

at::Tensor take_place(const at::Tensor& parameter) {
  Offers& known = offers();
  const std::lock_guard lock(known.mutex);
  const auto found = known.all.find(parameter.unsafeGetTensorImpl());
  if (found == known.all.end() || is_seen(found->second.place)) return {};
  return gradient_at(found->second.place);
}

}  // namespace

GradientPlaces::~GradientPlaces() {
  const std::lock_guard lock(offers().mutex);
  std::erase_if(offers().all, [&](const auto& offer) { return offer.second.owner == this; });
}

void GradientPlaces::offer(const at::Tensor& parameter, const at::Tensor& place) {
  const std::lock_guard lock(offers().mutex);
  offers().all[parameter.unsafeGetTensorImpl()] = {this, place};
}

// Not a view for autograd: zero_grad(false) detaches gradients in place, which views refuse.
at::Tensor make_place(const at::Tensor& memory, std::int64_t element, at::IntArrayRef sizes,
    at::IntArrayRef strides) {
  auto* const data = static_cast<std::byte*>(memory.mutable_data_ptr()) +
                     element * static_cast<std::int64_t>(memory.itemsize());
  return at::from_blob(
      data, sizes, strides, [memory](void*) {}, memory.options(), memory.device());
}

at::Tensor gradient_at(const at::Tensor& place) {
  return at::empty({0}, place.options())
      .set_(place.storage(), place.storage_offset(), place.sizes(), place.strides());
}

bool is_seen(const at::Tensor& place) { return place.storage().use_count() > 1; }

// The storages exchange their memory, so that tensors of others need not be known.
void leave_to_those_who_see(at::Tensor& place) {
  const at::NoGradGuard no_grad;
  at::Tensor copy = place.clone();
  auto* const theirs = place.storage().unsafeGetStorageImpl();
  auto* const ours = copy.storage().unsafeGetStorageImpl();
  c10::DataPtr copied = ours->set_data_ptr({});
  ours->set_data_ptr(theirs->set_data_ptr(std::move(copied)));
  place = std::move(copy);
}

// A tensor of its own, for autograd keeps a gradient only if nobody else holds it.
at::Tensor empty_gradient(const at::Tensor& parameter) {
  const bool fits = parameter.is_leaf() && !parameter.grad().defined() && !is_for_caller();
  const at::Tensor gradient = fits ? take_place(parameter) : at::Tensor();
  const bool is_laid_out_alike = gradient.defined() && gradient.strides() == parameter.strides();
  return is_laid_out_alike ? gradient : at::empty_like(parameter);
}

}  // namespace lockstep
