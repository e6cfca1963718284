// What the reducer does from the first gradient of a backward pass to the last.

#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/parallel/ddp/reducer.h"
#include "lockstep/parallel/ddp/reducer_parts.h"

namespace lockstep {
namespace {

bool is_same_memory(const torch::Tensor& a, const torch::Tensor& b) {
  return a.data_ptr() == b.data_ptr() && a.strides() == b.strides() && a.sizes() == b.sizes();
}

}  // namespace

void Reducer::begin_pass() {
  if (!rebuilt_ && is_order_known()) rebuild_in_arrival_order();
  arrival_.clear();
  for (Slot& slot : slots_) slot.ready = slot.unused = false;
  for (Bucket& bucket : buckets_) bucket.missing = bucket.parameters;
  next_launch_ = next_poll_ = 0;
  in_pass_ = true;
}

// Makes the place in the bucket the gradient, unless it is already.
void Reducer::fill(Slot& slot) {
  torch::Tensor& gradient = slot.parameter.mutable_grad();
  if (!gradient.defined()) {
    slot.view.zero_();
    return;
  }
  if (gradient.layout() != torch::kStrided) {
    fail(concat(
        "DistributedDataParallel: the gradient of ",
        slot.name,
        " is sparse; sparse gradients are not reduced"));
  }
  if (is_same_memory(gradient, slot.view)) return;
  slot.view.copy_(gradient);
  gradient = slot.view;  // frees the memory that the gradient came in
}

void Reducer::mark_ready(std::size_t index) {
  slots_[index].ready = true;
  --buckets_[slots_[index].bucket].missing;
}

void Reducer::launch_full_buckets() {
  const Timed timed(communication_seconds_);
  for (; next_launch_ < buckets_.size() && buckets_[next_launch_].missing == 0; ++next_launch_) {
    Bucket& bucket = buckets_[next_launch_];
    bucket.work = group_.all_reduce(bucket.memory, ReduceOp::kMean);
  }
}

// Carries forward what is under way (see Note [Rounds]); the buckets finish in order.
void Reducer::poll() {
  const Timed timed(communication_seconds_);
  while (next_poll_ < next_launch_ && buckets_[next_poll_].work.done()) ++next_poll_;
}

void Reducer::wait_for_buckets() {
  const Timed timed(communication_seconds_);
  for (Bucket& bucket : buckets_) {
    bucket.work.wait();
    bucket.work = {};
  }
}

void Reducer::finish_pass() {
  const torch::NoGradGuard no_grad;
  in_pass_ = false;
  complete_missing();
  launch_full_buckets();
  if (options_.find_unused_parameters) agree_on_used();
  wait_for_buckets();
  for (Slot& slot : slots_) {
    if (!slot.unused) slot.parameter.mutable_grad() = slot.view;
  }
}

}  // namespace lockstep
