#include "lockstep/device/gradient_places.h"

#include <mutex>

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/graph_task.h>

namespace lockstep {
namespace {

struct Offer {
  const GradientPlaces* owner = nullptr;
  at::Tensor place;
  bool is_free = false;
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
  if (found == known.all.end() || !found->second.is_free) return {};
  found->second.is_free = false;
  return found->second.place;
}

}  // namespace

GradientPlaces::~GradientPlaces() {
  const std::lock_guard lock(offers().mutex);
  for (const auto& [parameter, place] : places_) {
    const auto found = offers().all.find(parameter);
    if (found != offers().all.end() && found->second.owner == this) offers().all.erase(found);
  }
}

void GradientPlaces::offer(const at::Tensor& parameter, const at::Tensor& place) {
  const std::lock_guard lock(offers().mutex);
  places_[parameter.unsafeGetTensorImpl()] = place;
  offers().all[parameter.unsafeGetTensorImpl()] = {this, place, true};
}

void GradientPlaces::renew() {
  const std::lock_guard lock(offers().mutex);
  for (const auto& [parameter, place] : places_) {
    Offer& offer = offers().all[parameter];
    if (offer.owner == this) offer.is_free = true;
  }
}

// A tensor of its own, for autograd keeps a gradient only if nobody else holds it.
at::Tensor empty_gradient(const at::Tensor& parameter) {
  const bool fits = parameter.is_leaf() && !parameter.grad().defined() && !is_for_caller();
  const at::Tensor place = fits ? take_place(parameter) : at::Tensor();
  if (!place.defined() || place.strides() != parameter.strides()) return at::empty_like(parameter);
  return at::empty({0}, place.options())
      .set_(place.storage(), place.storage_offset(), place.sizes(), place.strides());
}

}  // namespace lockstep
