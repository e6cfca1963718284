#include "lockstep/parallel/optim/flat_shares.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <tuple>
#include <unordered_set>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "lockstep/comm/reduce_op.h"
#include "lockstep/device/alignment.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/parallel/ddp/replicated_state.h"

namespace lockstep {
namespace {

using torch::Tensor;

using Kind = std::tuple<at::ScalarType, at::DeviceType, at::DeviceIndex>;

Kind kind_of(const Tensor& tensor) {
  return {tensor.scalar_type(), tensor.device().type(), tensor.device().index()};
}

// A view of it, or a parameter that is tied to it by memory, would keep the old values.
bool has_memory_of_its_own(const Tensor& parameter) {
  return parameter.layout() == at::kStrided && parameter.numel() > 0 &&
         parameter.is_non_overlapping_and_dense() &&
         parameter.storage().nbytes() == parameter.nbytes() && parameter.storage().use_count() == 1;
}

// Calls the body with each parameter and where it lies, in elements.
template <typename Body>
void for_each_place(const std::vector<Tensor>& parameters, Body body) {
  std::int64_t place = 0;
  for (const Tensor& parameter : parameters) {
    body(parameter, place);
    place += aligned_elements(parameter);
  }
}

bool are_there(const Tensor& memory, const std::vector<Tensor>& parameters) {
  bool all = true;
  for_each_place(parameters, [&](const Tensor& parameter, std::int64_t place) {
    all = all && parameter.is_alias_of(memory) && parameter.storage_offset() == place &&
          parameter.scalar_type() == memory.scalar_type();
  });
  return all;
}

void move_there(const Tensor& memory, const std::vector<Tensor>& parameters) {
  for_each_place(parameters, [&](Tensor parameter, std::int64_t place) {
    const Tensor values = memory.as_strided(parameter.sizes(), parameter.strides(), place);
    values.copy_(parameter);
    parameter.set_data(values);
  });
}

// As an operator in place would: a graph may have saved them.
void count_versions(const std::vector<Tensor>& parameters) {
  if (c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::ADInplaceOrView)) return;
  for (const Tensor& parameter : parameters) parameter.unsafeGetTensorImpl()->bump_version();
}

}  // namespace

// Forgets memory whose parameters are elsewhere by now, or another rank's.
void FlatShares::forget_moved(const Shares& shares) {
  std::vector<std::unordered_set<const void*>> owned(shares.size());
  for (std::size_t owner = 0; owner < shares.size(); ++owner)
    for (const Tensor& parameter : shares[owner])
      owned[owner].insert(parameter.unsafeGetTensorImpl());
  std::erase_if(flats_, [&](const Flat& flat) {
    const auto& own = owned[static_cast<std::size_t>(flat.owner)];
    const bool are_owned = std::ranges::all_of(flat.parameters,
        [&](const Tensor& parameter) { return own.contains(parameter.unsafeGetTensorImpl()); });
    return !are_owned || !are_there(flat.memory, flat.parameters);
  });
}

FlatShares::Places FlatShares::places() const {
  Places places;
  for (const Tensor& parameter : packed_) places[parameter.unsafeGetTensorImpl()] = false;
  for (const Flat& flat : flats_)
    for (const Tensor& parameter : flat.parameters) places[parameter.unsafeGetTensorImpl()] = true;
  return places;
}

// Where all ranks can: their parameters may have come to lie differently.
std::vector<bool> FlatShares::agreed(const std::vector<Tensor>& parameters) const {
  const auto count = static_cast<std::int64_t>(parameters.size());
  const Tensor all = at::empty({count}, on_host(torch::kInt));
  auto* const flags = all.data_ptr<std::int32_t>();
  std::ranges::transform(parameters, flags, has_memory_of_its_own);
  group_.all_reduce(all, ReduceOp::kMin).wait();
  return std::vector<bool>(flags, flags + count);
}

// One memory for each type and device.
void FlatShares::place(int owner, const std::vector<Tensor>& share) {
  std::map<Kind, std::vector<Tensor>> kinds;
  for (const Tensor& parameter : share) kinds[kind_of(parameter)].push_back(parameter);
  for (const auto& [kind, parameters] : kinds) {
    std::int64_t elements = 0;
    for (const Tensor& parameter : parameters) elements += aligned_elements(parameter);
    const Tensor memory = group_.empty(elements, parameters.front().options().requires_grad(false));
    memory.zero_();  // what lies between two parameters is passed on, too
    move_there(memory, parameters);
    flats_.push_back({owner, memory, parameters});
  }
}

void FlatShares::place_new(const Shares& shares) {
  const Places places = this->places();
  for (std::size_t owner = 0; owner < shares.size(); ++owner) {
    std::vector<Tensor> fresh, placed;
    std::ranges::copy_if(shares[owner], std::back_inserter(fresh),
        [&](const Tensor& each) { return !places.contains(each.unsafeGetTensorImpl()); });
    if (fresh.empty()) continue;
    const std::vector<bool> can = agreed(fresh);
    for (std::size_t i = 0; i < fresh.size(); ++i) (can[i] ? placed : packed_).push_back(fresh[i]);
    place(static_cast<int>(owner), placed);
  }
}

void FlatShares::broadcast(const Shares& shares) {
  if (group_.size() == 1) return;
  const torch::NoGradGuard no_gradients;
  forget_moved(shares);
  place_new(shares);
  std::vector<Work> passed;
  for (const Flat& flat : flats_) passed.push_back(group_.broadcast(flat.memory, flat.owner));
  const Places places = this->places();
  for (std::size_t owner = 0; owner < shares.size(); ++owner) {
    std::vector<Tensor> packed;
    std::ranges::copy_if(shares[owner], std::back_inserter(packed),
        [&](const Tensor& each) { return !places.at(each.unsafeGetTensorImpl()); });
    broadcast_all(packed, static_cast<int>(owner), group_);
  }
  for (Work& work : passed) work.wait();
  for (const Flat& flat : flats_)
    if (flat.owner != group_.rank()) count_versions(flat.parameters);
}

}  // namespace lockstep
