#include "lockstep/parallel/reducer.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include "lockstep/core/error.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/parallel/reducer_parts.h"

namespace lockstep {
namespace {

using torch::autograd::variable_list;

/// Adds the seconds of a scope to a sum.
class Timed {
 public:
  explicit Timed(double& sum) : sum_(sum) {}
  ~Timed() { sum_ += stopwatch_.seconds(); }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  double& sum_;
  Stopwatch stopwatch_;
};

}  // namespace

bool is_same_memory(const torch::Tensor& a, const torch::Tensor& b) {
  return a.data_ptr() == b.data_ptr() && a.strides() == b.strides() && a.sizes() == b.sizes();
}

Reducer::Reducer(NamedTensors parameters, ProcessGroup group, ReducerOptions options)
    : group_(std::move(group)), options_(options), hooks_(std::make_unique<Hooks>()) {
  for (auto& [name, parameter] : parameters) slots_.push_back({std::move(name), parameter});
  if (group_.size() == 1) return;
  build(reverse_order(slots_.size()));
  for (std::size_t index = 0; index < slots_.size(); ++index) {
    auto node = torch::autograd::impl::grad_accumulator(slots_[index].parameter);
    const auto hook = [this, index](const variable_list& outputs, const variable_list&) {
      on_gradient(index);
      return outputs;
    };
    const std::uintptr_t key =
        node->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(hook));
    hooks_->attached.push_back({std::move(node), key});
  }
}

Reducer::~Reducer() {
  for (Hooks::Attached& attached : hooks_->attached) attached.node->del_post_hook(attached.key);
}

void Reducer::on_gradient(std::size_t index) {
  if (!synchronised_) return;
  const torch::NoGradGuard no_grad;
  if (!in_pass_) begin_pass();
  Slot& slot = slots_[index];
  if (slot.ready) {
    const std::string reason = concat(
        "DistributedDataParallel: the gradient of ",
        slot.name,
        " came twice on rank ",
        group_.rank(),
        "; an earlier backward ended by an exception, or backward was called inside backward");
    group_.abort(reason);
    throw Error(reason);
  }
  fill(slot);
  arrival_.push_back(index);
  mark_ready(index);
  launch_full_buckets();
  poll();
}

void Reducer::begin_pass() {
  if (!rebuilt_ && arrival_.size() == slots_.size()) rebuild_in_arrival_order();
  arrival_.clear();
  for (Slot& slot : slots_) slot.ready = slot.unused = false;
  for (Bucket& bucket : buckets_) bucket.missing = bucket.parameters;
  next_launch_ = next_poll_ = 0;
  in_pass_ = true;
  torch::autograd::Engine::get_default_engine().queue_callback([this] { finish_pass(); });
}

// Makes the place in the bucket the gradient, unless it is already.
void Reducer::fill(Slot& slot) {
  torch::Tensor& gradient = slot.parameter.mutable_grad();
  if (!gradient.defined()) {
    slot.view.zero_();
    return;
  }
  check(
      gradient.layout() == torch::kStrided,
      "DistributedDataParallel: the gradient of ",
      slot.name,
      " is sparse; sparse gradients are not reduced");
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
  handle_unused_parameters();
  launch_full_buckets();
  wait_for_buckets();
  for (Slot& slot : slots_) {
    if (!slot.unused) slot.parameter.mutable_grad() = slot.view;
  }
}

}  // namespace lockstep
