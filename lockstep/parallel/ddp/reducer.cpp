#include "lockstep/parallel/ddp/reducer.h"

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <utility>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include "lockstep/core/error.h"
#include "lockstep/core/progress/own_slot.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/parallel/ddp/reducer_parts.h"

namespace lockstep {
namespace {

// The parameter's own, if its memory has no holes.
std::vector<std::int64_t> place_strides(const torch::Tensor& parameter) {
  if (parameter.is_non_overlapping_and_dense()) return parameter.strides().vec();
  return torch::empty_like(parameter).strides().vec();
}

std::uint64_t bucket_kind(const torch::Tensor& parameter) {
  const auto type = static_cast<std::uint8_t>(parameter.scalar_type());
  const auto device = static_cast<std::uint8_t>(parameter.device().type());
  const auto index = static_cast<std::uint8_t>(parameter.device().index());
  return type | std::uint64_t{device} << 8 | std::uint64_t{index} << 16;
}

}  // namespace

void Reducer::build(const std::vector<std::size_t>& order) {
  std::vector<ParameterShape> shapes;
  for (const Slot& slot : slots_) {
    const torch::Tensor& parameter = slot.parameter;
    shapes.push_back({parameter.nbytes(), bucket_kind(parameter), slot.sparse});
  }
  plans_ = cut_buckets(shapes, order, {options_.first_bucket_bytes, options_.bucket_bytes});
  buckets_.clear();
  for (const BucketPlan& plan : plans_) give_memory(plan);
}

// A sparse gradient makes a separate bucket and stays where it is.
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
      Slot& slot = slots_[index];
      slot.view = make_place(bucket.memory, offset, slot.parameter.sizes(), slot.strides);
      places_.offer(slot.parameter, slot.view);
      offset += slot.parameter.numel();
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
  torch::Tensor order =
      torch::empty({static_cast<std::int64_t>(arrival_.size())}, on_host(torch::kLong));
  std::copy(arrival_.begin(), arrival_.end(), order.data_ptr<std::int64_t>());
  // Where the parameters are, for not every backend carries tensors of the CPU.
  if (!slots_.empty()) order = order.to(slots_.front().parameter.device());
  group_.broadcast(order, 0).wait();
  order = order.cpu();
  const auto* indices = order.data_ptr<std::int64_t>();
  build(std::vector<std::size_t>(indices, indices + order.numel()));
  rebuilt_ = true;
}

using torch::autograd::variable_list;

Reducer::Reducer(NamedTensors parameters, ProcessGroup group, ReducerOptions options)
    : group_(std::move(group)),
      options_(std::move(options)),
      hooks_(std::make_unique<Hooks>()),
      divisor_(group_.size()) {
  hooks_->alive = std::make_shared<Reducer*>(this);
  for (auto& [name, parameter] : parameters) {
    const bool sparse = options_.sparse.count(name) != 0;
    slots_.push_back({std::move(name), parameter, place_strides(parameter.detach()), sparse});
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

// A backward that reaches no parameter, such as one of torch::autograd::grad, does not count.
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
  fail(concat("DistributedDataParallel: an earlier backward of rank ", group_.rank(),
      " ended with an exception and lost its gradients; make a new model from a snapshot"));
}

void Reducer::on_gradient(std::size_t index) {
  sign_of_life();
  if (!synchronised_) return;
  const bool create_graph = torch::GradMode::is_enabled();
  const torch::NoGradGuard no_grad;
  const std::lock_guard lock(mutex_);
  Slot& slot = slots_[index];
  if (create_graph) {
    fail(concat("DistributedDataParallel: backward with create_graph reached ", slot.name,
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
  for (Slot& slot : slots_) keep_for_others(slot);
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
  check(hook_ == nullptr,
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

// The others wait for this rank, so they must learn the reason.
void Reducer::fail(const std::string& reason) const {
  group_.abort(reason);
  throw InvalidArgument(reason);
}

double ReducerReport::hidden_share() const {
  if (communication_seconds <= 0) return 0;
  return std::clamp(1 - exposed_seconds / communication_seconds, 0.0, 1.0);
}

std::string ReducerReport::to_string() const {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << passes << " passes, " << buckets << " buckets, "
       << static_cast<double>(bytes) / (1 << 20) << " MiB a pass, "
       << (rebuilt ? "rebuilt" : "as first cut");
  if (passes == 0) return text.str();
  text << ", " << 1e3 * communication_seconds / static_cast<double>(passes)
       << " ms of communication a pass, " << std::setprecision(0) << 100 * hidden_share()
       << " % of it hidden behind backward";
  return text.str();
}

}  // namespace lockstep
