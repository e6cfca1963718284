#include "lockstep/parallel/ddp/reducer.h"

#include <utility>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include "lockstep/core/error.h"
#include "lockstep/parallel/ddp/reducer_parts.h"

namespace lockstep {

using torch::autograd::variable_list;

Reducer::Reducer(NamedTensors parameters, ProcessGroup group, ReducerOptions options)
    : group_(std::move(group)),
      options_(std::move(options)),
      hooks_(std::make_unique<Hooks>()),
      divisor_(group_.size()) {
  hooks_->alive = std::make_shared<Reducer*>(this);
  for (auto& [name, parameter] : parameters) {
    const bool sparse = options_.sparse.count(name) != 0;
    slots_.push_back({std::move(name), parameter, sparse});
  }
  if (group_.size() == 1) return;
  build(reverse_order(slots_.size()));
  attach();
}

Reducer::~Reducer() {
  for (Hooks::Attached& attached : hooks_->attached) attached.node->del_post_hook(attached.key);
}

void Reducer::attach() {
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

// A backward that reaches no parameter, such as one of torch::autograd::grad, is no pass.
void Reducer::queue_end() {
  end_is_queued_ = true;
  torch::autograd::Engine::get_default_engine().queue_callback([this] {
    const std::lock_guard lock(mutex_);
    end_is_queued_ = false;
    if (in_pass_) finish_pass();
  });
}

void Reducer::expect_backward(const std::vector<torch::Tensor>& outputs) {
  if (group_.size() == 1 || !synchronised_ || !torch::GradMode::is_enabled()) return;
  for (const torch::Tensor& output : outputs) {
    if (!output.defined() || !output.requires_grad() || output.is_leaf()) continue;
    output.register_hook([alive = std::weak_ptr(hooks_->alive)](const torch::Tensor&) {
      const auto reducer = alive.lock();
      if (!reducer || !(*reducer)->synchronised_) return;
      const std::lock_guard lock((*reducer)->mutex_);
      if (!(*reducer)->in_pass_) (*reducer)->queue_end();
    });
  }
}

void Reducer::check_no_pass_was_broken_off() {
  if (torch::autograd::get_current_graph_task_id() != -1) return;  // a forward inside backward
  const std::lock_guard lock(mutex_);
  end_is_queued_ = false;
  if (!in_pass_) return;
  fail(concat(
      "DistributedDataParallel: an earlier backward of rank ", group_.rank(),
      " ended by an exception, and its gradients with it; make the model anew from a snapshot"));
}

void Reducer::on_gradient(std::size_t index) {
  if (!synchronised_) return;
  const bool create_graph = torch::GradMode::is_enabled();
  const torch::NoGradGuard no_grad;
  const std::lock_guard lock(mutex_);
  Slot& slot = slots_[index];
  if (create_graph) {
    fail(concat(
        "DistributedDataParallel: backward with create_graph reached ", slot.name,
        ", but what is averaged over ranks cannot be differentiated again; take such gradients by "
        "torch::autograd::grad and call backward without create_graph on the sum"));
  }
  if (!in_pass_)
    begin_pass(Pass::kBackward, announce_ ? announce_(Pass::kBackward) : group_.size());
  if (!end_is_queued_) queue_end();
  count_use(slot);
  fill(slot);
  if (slot.uses == 1 && !order_known_) arrival_.push_back(index);
  if (!is_complete(slot)) return;
  mark_ready(index);
  launch_full_buckets();
  poll();
}

void Reducer::reduce_accumulated() {
  if (group_.size() == 1) return;
  const torch::NoGradGuard no_grad;
  const std::lock_guard lock(mutex_);
  check(!in_pass_, "reduce_accumulated: a backward pass is under way; call it after backward()");
  begin_pass(Pass::kAccumulated, announce_ ? announce_(Pass::kAccumulated) : group_.size());
  for (std::size_t index = 0; index < slots_.size(); ++index) {
    if (!slots_[index].parameter.grad().defined()) continue;
    fill(slots_[index]);
    mark_ready(index);
  }
  finish_pass();
}

void Reducer::shadow(Pass pass, int divisor) {
  if (group_.size() == 1) return;
  const torch::NoGradGuard no_grad;
  const std::lock_guard lock(mutex_);
  const ReducerReport own = report_;
  shadowing_ = true;
  begin_pass(pass, divisor);
  for (Bucket& bucket : buckets_) {
    if (bucket.memory.defined()) bucket.memory.zero_();
    bucket.missing = 0;
  }
  finish_pass();
  shadowing_ = false;
  report_ = own;
}

void Reducer::register_comm_hook(CommHook hook) {
  check(hook != nullptr, "register_comm_hook: the hook is empty");
  check(
      hook_ == nullptr,
      "register_comm_hook: there is a communication hook already; make a new "
      "DistributedDataParallel for another one");
  hook_ = std::move(hook);
}

ReducerReport Reducer::report() const {
  ReducerReport report = report_;
  report.buckets = buckets_.size();
  report.bytes = 0;
  for (const Bucket& bucket : buckets_)
    report.bytes += bucket.memory.defined() ? bucket.memory.nbytes() : 0;
  report.rebuilt = rebuilt_;
  report.graph_is_static = own_passes_ > 1 && same_graph_;
  return report;
}

// The others learn the reason too: they wait for this rank.
void Reducer::fail(const std::string& reason) const {
  group_.abort(reason);
  throw InvalidArgument(reason);
}

}  // namespace lockstep
