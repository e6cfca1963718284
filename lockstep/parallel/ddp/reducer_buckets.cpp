// How the reducer makes its buckets, at first and anew.

#include <algorithm>

#include "lockstep/parallel/ddp/reducer.h"
#include "lockstep/parallel/ddp/reducer_parts.h"

namespace lockstep {
namespace {

// Gives a tensor on the bucket's memory that is no view in autograd's eyes: zero_grad(false)
// detaches gradients in place, which views refuse.
torch::Tensor place_in(
    const torch::Tensor& memory, std::int64_t offset, const torch::Tensor& like) {
  const bool dense = like.is_non_overlapping_and_dense();
  const auto strides = dense ? like.strides().vec() : torch::empty_like(like).strides().vec();
  return torch::empty({0}, memory.options())
      .set_(memory.storage(), memory.storage_offset() + offset, like.sizes(), strides);
}

ParameterShape shape_of(const torch::Tensor& parameter) {
  return {parameter.nbytes(), parameter.scalar_type(), parameter.device()};
}

}  // namespace

void Reducer::build(const std::vector<std::size_t>& order) {
  std::vector<ParameterShape> shapes;
  for (const Slot& slot : slots_) shapes.push_back(shape_of(slot.parameter));
  plans_ = cut_buckets(shapes, order, {options_.first_bucket_bytes, options_.bucket_bytes});
  buckets_.clear();
  for (const BucketPlan& plan : plans_) {
    std::int64_t elements = 0;
    for (const std::size_t index : plan.parameters) elements += slots_[index].parameter.numel();
    const torch::Tensor memory = group_.empty(
        elements, slots_[plan.parameters.front()].parameter.options().requires_grad(false));
    std::int64_t offset = 0;
    for (const std::size_t index : plan.parameters) {
      slots_[index].view = place_in(memory, offset, slots_[index].parameter.detach());
      slots_[index].bucket = buckets_.size();
      offset += slots_[index].parameter.numel();
    }
    buckets_.push_back({memory, plan.parameters.size()});
  }
}

// The same on all ranks: where parameters may be left out, each has an arrival order of its own.
bool Reducer::is_order_known() const {
  return !options_.find_unused_parameters && arrival_.size() == slots_.size();
}

void Reducer::rebuild_in_arrival_order() {
  torch::Tensor order = torch::empty({static_cast<std::int64_t>(arrival_.size())}, torch::kLong);
  std::copy(arrival_.begin(), arrival_.end(), order.data_ptr<std::int64_t>());
  // Where the parameters are, for not every backend carries tensors of the CPU.
  const torch::Tensor agreed = order.to(slots_.front().parameter.device());
  group_.broadcast(agreed, 0).wait();
  order = agreed.cpu();
  const auto* indices = order.data_ptr<std::int64_t>();
  build(std::vector<std::size_t>(indices, indices + order.numel()));
  rebuilt_ = true;
}

}  // namespace lockstep
