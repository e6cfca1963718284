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

}  // namespace

void Reducer::build(const std::vector<std::size_t>& order) {
  std::vector<ParameterShape> shapes;
  for (const Slot& slot : slots_) {
    const torch::Tensor& parameter = slot.parameter;
    shapes.push_back(
        {parameter.nbytes(), parameter.scalar_type(), parameter.device(), slot.sparse});
  }
  plans_ = cut_buckets(shapes, order, {options_.first_bucket_bytes, options_.bucket_bytes});
  buckets_.clear();
  for (const BucketPlan& plan : plans_) give_memory(plan);
}

// A sparse gradient is a bucket of its own and stays where it is.
void Reducer::give_memory(const BucketPlan& plan) {
  Bucket bucket{.parameters = plan.parameters};
  for (const std::size_t index : plan.parameters) slots_[index].bucket = buckets_.size();
  if (!slots_[plan.parameters.front()].sparse) {
    std::int64_t elements = 0;
    for (const std::size_t index : plan.parameters) elements += slots_[index].parameter.numel();
    bucket.memory = group_.empty(
        elements, slots_[plan.parameters.front()].parameter.options().requires_grad(false));
    std::int64_t offset = 0;
    for (const std::size_t index : plan.parameters) {
      slots_[index].view = place_in(bucket.memory, offset, slots_[index].parameter.detach());
      offset += slots_[index].parameter.numel();
    }
  }
  buckets_.push_back(std::move(bucket));
}

void Reducer::rebuild_in_arrival_order() {
  // What has not arrived on this rank follows in the present order.
  std::vector<bool> arrived(slots_.size());
  for (const std::size_t index : arrival_) arrived[index] = true;
  for (const BucketPlan& plan : plans_) {
    for (const std::size_t index : plan.parameters) {
      if (!arrived[index]) arrival_.push_back(index);
    }
  }
  torch::Tensor order = torch::empty({static_cast<std::int64_t>(arrival_.size())}, torch::kLong);
  std::copy(arrival_.begin(), arrival_.end(), order.data_ptr<std::int64_t>());
  // Where the parameters are, for not every backend carries tensors of the CPU.
  if (!slots_.empty()) order = order.to(slots_.front().parameter.device());
  group_.broadcast(order, 0).wait();
  order = order.cpu();
  const auto* indices = order.data_ptr<std::int64_t>();
  build(std::vector<std::size_t>(indices, indices + order.numel()));
  rebuilt_ = true;
}

}  // namespace lockstep
