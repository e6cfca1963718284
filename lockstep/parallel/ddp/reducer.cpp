#include "lockstep/parallel/ddp/reducer.h"

#include <algorithm>
#include <cstdint>
#include <iomanip>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include "lockstep/comm/work.h"
#include "lockstep/core/error.h"
#include "lockstep/core/spans.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/core/text.h"
#include "lockstep/device/alignment.h"
#include "lockstep/device/gradient_places.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/liveness/own_slot.h"
#include "lockstep/parallel/ddp/comm_hook.h"

namespace lockstep {

/// A parameter and its place in a bucket.
struct Reducer::Slot {
  std::string name;
  torch::Tensor parameter;
  /// At construction, where they were alike on all ranks: averages are taken in the order of
  /// memory.
  std::vector<std::int64_t> strides;
  bool sparse = false;
  GradientPlace place = {};   ///< in the bucket's memory
  torch::Tensor result = {};  ///< instead of the place, if the gradient is sparse
  std::size_t bucket = 0;

  // Of the pass under way.
  int uses = 0;
  bool ready = false;
  bool unused = false;  ///< by any rank

  int first_uses = 0;       ///< in this rank's first pass
  bool never_used = false;  ///< by any rank in the first pass; matters if the graph is static
};

/// A stretch of memory in which gradients are reduced together.
struct Reducer::Bucket {
  torch::Tensor memory = {};  ///< one-dimensional; undefined if the gradient is sparse
  std::vector<std::size_t> parameters = {};
  std::size_t missing = 0;  ///< parameters whose gradient is not in yet
  CommStep step = {};
};

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
  SpanScope span_{Activity::kCommunication, "reducer"};
};

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
  // Before the new ones are made, so that only one set of them is in memory.
  buckets_.clear();
  for (Slot& slot : slots_) slot.place = {};
  for (const BucketPlan& plan : plans_) give_memory(plan);
}

// A sparse gradient makes a separate bucket and stays where it is. Between dense ones are zeros:
// see Note [Alignment].
void Reducer::give_memory(const BucketPlan& plan) {
  Bucket bucket{.parameters = plan.parameters};
  for (const std::size_t index : plan.parameters) slots_[index].bucket = buckets_.size();
  if (!slots_[plan.parameters.front()].sparse) {
    std::int64_t elements = 0;
    for (const std::size_t index : plan.parameters)
      elements += aligned_elements(slots_[index].parameter);
    bucket.memory = group_.empty(
        elements, slots_[plan.parameters.front()].parameter.options().requires_grad(false));
    bucket.memory.zero_();
    std::int64_t offset = 0;
    for (const std::size_t index : plan.parameters) {
      Slot& slot = slots_[index];
      slot.place = {bucket.memory, offset, slot.parameter.sizes(), slot.strides};
      slot.place.offer_to(slot.parameter);
      offset += aligned_elements(slot.parameter);
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

Reducer::Reducer(NamedTensors parameters, ProcessGroup group, ReducerOptions options)
    : group_(std::move(group)), options_(std::move(options)), divisor_(group_.size()) {
  for (auto& [name, parameter] : parameters) {
    const bool sparse = options_.sparse.count(name) != 0;
    slots_.push_back({std::move(name), parameter, place_strides(parameter.detach()), sparse});
  }
  if (group_.size() == 1) return;
  build(reverse_order(slots_.size()));
  attach();
}

Reducer::~Reducer() = default;

void Reducer::attach() {
  for (std::size_t index = 0; index < slots_.size(); ++index)
    hooks_.add(slots_[index].parameter, [this, index] { on_gradient(index); });
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
    output.register_hook([alive = std::weak_ptr(alive_)](const torch::Tensor&) {
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

// What the reducer does from the first gradient of a backward pass to the last.

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

// The place holds the parameter's gradient, values that nothing uses, or a gradient that a caller
// kept.
void Reducer::keep_for_others(Slot& slot) {
  if (slot.sparse || slot.place.has(slot.parameter.grad()) || !slot.place.is_seen()) return;
  slot.place.leave_to_those_who_see();
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
  if (slot.sparse || slot.place.has(gradient)) return;
  keep_for_others(slot);
  if (gradient.defined()) {
    slot.place.take_in(gradient);
  } else {
    slot.place.memory().zero_();
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
    description.gradients.push_back(slots_[parameter].place.memory());
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
  if (!shadowing_) complete_missing();
  launch_full_buckets();
  agree_on_used();
  finish_steps();
  in_pass_ = false;  // not if a hook has thrown: the other ranks go on with a step that this lacks
  if (pass_ == Pass::kBackward) order_known_ = true;
  if (shadowing_) return;
  if (!buckets_.empty()) report_reduction();
  ++report_.passes;
  divide();
  for (Slot& slot : slots_) {
    torch::Tensor& gradient = slot.parameter.mutable_grad();
    if (!slot.unused && slot.sparse) gradient = slot.result;
    if (!slot.unused && !slot.sparse && !slot.place.has(gradient)) gradient = slot.place.gradient();
    slot.result.reset();
  }
  if (pass_ == Pass::kBackward) compare_with_first_pass();
}

// Parameters that a backward pass did not reach, or reached several times.

void Reducer::count_use(Slot& slot) const {
  ++slot.uses;
  if (options_.static_graph) {
    // A rank may record later than the others: what none of them used is settled all the same.
    if (slot.never_used || (recorded_ && slot.uses > slot.first_uses)) fail_for_changed_graph(slot);
  } else if (slot.uses > 1) {
    fail(concat("DistributedDataParallel: the gradient of ", slot.name,
        " came twice in one backward on rank ", group_.rank(),
        ", as it does when checkpointed parts share a parameter; if every pass does the same, "
        "construct it with DistributedDataParallelOptions().static_graph(true)"));
  }
}

// The first pass of a static graph shows how often each parameter is used; until then nobody knows
// when a gradient is complete, and all are reduced at the end.
bool Reducer::is_complete(const Slot& slot) const {
  return !options_.static_graph || (recorded_ && slot.uses == slot.first_uses);
}

// What no pass of this rank uses is ready from the start, so that its bucket can go early.
void Reducer::prepare_never_used() {
  for (std::size_t index = 0; index < slots_.size(); ++index) {
    Slot& slot = slots_[index];
    if (slot.first_uses > 0) continue;
    fill(slot);
    mark_ready(index);
  }
}

std::vector<std::size_t> Reducer::missing_parameters() const {
  std::vector<std::size_t> missing;
  for (std::size_t index = 0; index < slots_.size(); ++index) {
    if (!slots_[index].ready) missing.push_back(index);
  }
  return missing;
}

void Reducer::complete_missing() {
  const std::vector<std::size_t> missing = missing_parameters();
  if (missing.empty()) return;
  if (!may_leave_out()) fail_for_unused(missing);
  const bool must_match = options_.static_graph && recorded_ && pass_ == Pass::kBackward;
  if (must_match) fail_for_changed_graph(slots_[missing.front()]);
  for (const std::size_t index : missing) {
    fill(slots_[index]);
    mark_ready(index);
  }
}

// A gradient that was accumulated under no_sync counts as used, though this pass did not add to
// it; one that came but is undefined does not.
torch::Tensor Reducer::used_on_this_rank() const {
  torch::Tensor used =
      torch::empty({static_cast<std::int64_t>(slots_.size())}, on_host(torch::kByte));
  auto* flags = used.data_ptr<std::uint8_t>();
  for (const Slot& slot : slots_) *flags++ = !shadowing_ && slot.parameter.grad().defined() ? 1 : 0;
  // Where the parameters are, for not every backend carries tensors of the CPU.
  return slots_.empty() ? used : used.to(slots_.front().parameter.device());
}

void Reducer::agree_on_used() {
  const bool once = options_.static_graph && pass_ == Pass::kBackward;
  if (!may_leave_out() || (once && agreed_)) return;
  const Timed timed(report_.exposed_seconds);
  const torch::Tensor used = used_on_this_rank();
  group_.all_reduce(used, ReduceOp::kMax).wait();
  const torch::Tensor agreed = used.cpu();
  const auto* flags = agreed.data_ptr<std::uint8_t>();
  for (Slot& slot : slots_) {
    slot.unused = *flags++ == 0;
    if (once) slot.never_used = slot.unused;
  }
  agreed_ = agreed_ || once;
}

void Reducer::compare_with_first_pass() {
  for (Slot& slot : slots_) {
    if (own_passes_ == 0) slot.first_uses = slot.uses;
    same_graph_ = same_graph_ && slot.uses == slot.first_uses;
  }
  ++own_passes_;
  recorded_ = true;
}

void Reducer::fail_for_unused(const std::vector<std::size_t>& unused) const {
  std::vector<std::string> names;
  for (const std::size_t index : unused) names.push_back(slots_[index].name);
  fail(concat("DistributedDataParallel: backward on rank ", group_.rank(), " gave no gradient to ",
      joined(names),
      "; if that is meant, construct it with "
      "DistributedDataParallelOptions().find_unused_parameters(true), as lockstep train does with "
      "--find-unused-parameters"));
}

void Reducer::fail_for_changed_graph(const Slot& slot) const {
  fail(concat("DistributedDataParallel: static_graph(true) was given, but the graph changed: ",
      slot.name, " was used ", slot.uses, " times by this backward of rank ", group_.rank(),
      " and ", slot.first_uses,
      " times by the first; if that is meant, construct it with find_unused_parameters(true) "
      "instead"));
}

}  // namespace lockstep
