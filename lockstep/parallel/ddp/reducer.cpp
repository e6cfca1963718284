#include "lockstep/parallel/ddp/reducer.h"

#include <utility>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include "lockstep/core/error.h"
#include "lockstep/parallel/ddp/reducer_parts.h"

namespace lockstep {

using torch::autograd::variable_list;

Reducer::Reducer(NamedTensors parameters, ProcessGroup group, ReducerOptions options)
    : group_(std::move(group)), options_(options), hooks_(std::make_unique<Hooks>()) {
  for (auto& [name, parameter] : parameters) slots_.push_back({std::move(name), parameter});
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

void Reducer::on_gradient(std::size_t index) {
  if (!synchronised_) return;
  const torch::NoGradGuard no_grad;
  const std::lock_guard lock(mutex_);
  if (!in_pass_) {
    begin_pass();
    torch::autograd::Engine::get_default_engine().queue_callback([this] {
      const std::lock_guard lock_at_end(mutex_);
      finish_pass();
    });
  }
  Slot& slot = slots_[index];
  if (slot.ready) {
    fail(concat(
        "DistributedDataParallel: the gradient of ",
        slot.name,
        " came twice on rank ",
        group_.rank(),
        "; an earlier backward ended by an exception, or backward was called inside backward"));
  }
  fill(slot);
  arrival_.push_back(index);
  mark_ready(index);
  launch_full_buckets();
  poll();
}

void Reducer::reduce_accumulated() {
  if (group_.size() == 1) return;
  const torch::NoGradGuard no_grad;
  const std::lock_guard lock(mutex_);
  check(!in_pass_, "reduce_accumulated: a backward pass is under way; call it after backward()");
  begin_pass();
  for (std::size_t index = 0; index < slots_.size(); ++index) {
    if (!slots_[index].parameter.grad().defined()) continue;
    fill(slots_[index]);
    mark_ready(index);
  }
  finish_pass();
}

// The others learn the reason too: they wait for this rank.
void Reducer::fail(const std::string& reason) const {
  group_.abort(reason);
  throw InvalidArgument(reason);
}

}  // namespace lockstep
