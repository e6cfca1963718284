// What the reducer does from the first gradient of a backward pass to the last.

#include <algorithm>
#include <utility>

#include "lockstep/core/error.h"
#include "lockstep/core/spans.h"
#include "lockstep/parallel/ddp/reducer.h"
#include "lockstep/parallel/ddp/reducer_parts.h"
#include "lockstep/parallel/ddp/sparse_reduction.h"

namespace lockstep {
namespace {

bool is_in(const torch::Tensor& place, const torch::Tensor& gradient) {
  return gradient.defined() && gradient.layout() == torch::kStrided &&
         gradient.data_ptr() == place.data_ptr() && gradient.strides() == place.strides() &&
         gradient.sizes() == place.sizes();
}

// The tensor stays: whoever holds it has the parameter's gradient, as without a wrapper.
void move_into(const torch::Tensor& place, torch::Tensor& gradient) {
  place.copy_(gradient);
  gradient.set_data(gradient_at(place));  // frees the memory that the gradient came in
}

}  // namespace

// A run that goes on from a snapshot begins with the first buckets again. Where other buckets mean
// other bits, it would differ from one that was never stopped.
bool Reducer::may_rebuild() const {
  const bool is_same_each_time = !options_.find_unused_parameters || options_.static_graph;
  return !rebuilt_ && order_known_ && is_same_each_time && group_.sums_in_rank_order();
}

void Reducer::begin_pass(Pass pass, int divisor) {
  if (may_rebuild()) rebuild_in_arrival_order();
  for (Slot& slot : slots_) {
    slot.uses = 0;
    slot.ready = false;
    slot.unused = slot.never_used && pass == Pass::kBackward;
  }
  for (Bucket& bucket : buckets_) bucket.missing = bucket.parameters.size();
  next_launch_ = next_poll_ = 0;
  in_pass_ = true;
  pass_ = pass;
  divisor_ = divisor;
  if (options_.static_graph && recorded_ && !shadowing_ && pass_ == Pass::kBackward)
    prepare_never_used();
}

// What is in the place is still the gradient, or nobody's, or of somebody who kept it.
void Reducer::keep_for_others(Slot& slot) {
  if (slot.sparse || is_in(slot.view, slot.parameter.grad()) || !is_seen(slot.view)) return;
  leave_to_those_who_see(slot.view);
  places_.offer(slot.parameter, slot.view);
}

// Makes the gradient lie in its place in the bucket, unless it does already.
void Reducer::fill(Slot& slot) {
  torch::Tensor& gradient = slot.parameter.mutable_grad();
  const bool sparse = gradient.defined() && gradient.layout() != torch::kStrided;
  if (gradient.defined() && sparse != slot.sparse) {
    fail(concat("DistributedDataParallel: the gradient of ", slot.name,
        sparse ? " is sparse" : " is dense", ", but expected to be ",
        slot.sparse ? "sparse" : "dense",
        "; those of torch::nn::Embedding(...).sparse(true) are expected to be sparse, others are "
        "named by ReplicatedState::sparse"));
  }
  if (slot.sparse || is_in(slot.view, gradient)) return;
  keep_for_others(slot);
  if (gradient.defined()) {
    move_into(slot.view, gradient);
  } else {
    slot.view.zero_();
  }
}

void Reducer::mark_ready(std::size_t index) {
  slots_[index].ready = true;
  --buckets_[slots_[index].bucket].missing;
}

void Reducer::launch_full_buckets() {
  const Timed timed(report_.exposed_seconds);
  for (; next_launch_ < buckets_.size() && buckets_[next_launch_].missing == 0; ++next_launch_) {
    if (next_launch_ == 0) since_launch_.restart();
    buckets_[next_launch_].step = launch(next_launch_);
  }
}

CommStep Reducer::launch(std::size_t index) {
  const Bucket& bucket = buckets_[index];
  if (!bucket.memory.defined()) {
    Slot& slot = slots_[bucket.parameters.front()];
    const torch::Tensor gradient = shadowing_ ? torch::Tensor() : slot.parameter.grad();
    const auto receive = [&slot](torch::Tensor result) { slot.result = std::move(result); };
    return reduce_sparse(gradient, slot.parameter, group_, divisor_, receive);
  }
  if (hook_) return hook_(describe(index));
  const bool all = divisor_ == group_.size();
  return {group_.all_reduce(bucket.memory, all ? ReduceOp::kMean : ReduceOp::kSum)};
}

GradientBucket Reducer::describe(std::size_t index) const {
  const Bucket& bucket = buckets_[index];
  const bool is_last = std::none_of(buckets_.begin() + static_cast<std::ptrdiff_t>(index) + 1,
      buckets_.end(), [](const Bucket& later) { return later.memory.defined(); });
  GradientBucket description{index, is_last, bucket.memory, {}, {}, group_};
  for (const std::size_t parameter : bucket.parameters) {
    description.gradients.push_back(slots_[parameter].view);
    description.parameters.push_back(slots_[parameter].parameter);
  }
  return description;
}

// Carries forward what is under way (see Note [Rounds]); the buckets finish in order.
void Reducer::poll() {
  const Timed timed(report_.exposed_seconds);
  while (next_poll_ < next_launch_ && buckets_[next_poll_].step.work.done()) ++next_poll_;
}

// Goes through the buckets once per step, so that what the steps begin has one order on all ranks.
void Reducer::finish_steps() {
  const Timed timed(report_.exposed_seconds);
  for (bool more = true; more;) {
    more = false;
    for (Bucket& bucket : buckets_) {
      bucket.step.work.wait();
      const auto next = std::exchange(bucket.step.next, nullptr);
      bucket.step = next ? next() : CommStep{};
      more = more || next != nullptr;
    }
  }
}

// Sparse gradients are divided as they are added up.
void Reducer::divide() {
  if (divisor_ == group_.size()) return;
  for (const Bucket& bucket : buckets_) {
    if (!bucket.memory.defined()) continue;
    if (hook_) {
      bucket.memory.mul_(static_cast<double>(group_.size()) / divisor_);
    } else {
      bucket.memory.div_(divisor_);
    }
  }
}

void Reducer::report_reduction() {
  const double seconds = since_launch_.seconds();
  report_.communication_seconds += seconds;
  if (!SpanRecorder::is_on()) return;
  const std::int64_t now = SpanRecorder::now();
  SpanRecorder::add({.name = concat(buckets_.size(), buckets_.size() == 1 ? " bucket" : " buckets"),
      .activity = Activity::kReduction,
      .begin = now - static_cast<std::int64_t>(seconds * 1e9),
      .end = now});
}

void Reducer::finish_pass() {
  const torch::NoGradGuard no_grad;
  in_pass_ = false;
  if (!shadowing_) complete_missing();
  launch_full_buckets();
  agree_on_used();
  finish_steps();
  if (pass_ == Pass::kBackward) order_known_ = true;
  if (shadowing_) return;
  if (!buckets_.empty()) report_reduction();
  ++report_.passes;
  divide();
  for (Slot& slot : slots_) {
    torch::Tensor& gradient = slot.parameter.mutable_grad();
    if (!slot.unused && slot.sparse) gradient = slot.result;
    if (!slot.unused && !slot.sparse && !is_in(slot.view, gradient))
      gradient = gradient_at(slot.view);
    slot.result.reset();
  }
  if (pass_ == Pass::kBackward) compare_with_first_pass();
}

}  // namespace lockstep
