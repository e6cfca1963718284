#include "lockstep/parallel/fsdp/sharded_units.h"

#include <algorithm>
#include <exception>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/autograd/graph_task.h>

#include "lockstep/core/error.h"
#include "lockstep/core/spans.h"
#include "lockstep/core/stopwatch.h"
#include "lockstep/core/text.h"
#include "lockstep/device/accelerator.h"
#include "lockstep/device/host_memory.h"
#include "lockstep/device/parameters.h"
#include "lockstep/liveness/own_slot.h"
#include "lockstep/parallel/data_parallel.h"
#include "lockstep/parallel/pipeline/checkpoint.h"
#include "lockstep/parallel/pipeline/links.h"

namespace lockstep {
namespace {

ReplicatedState state_of_module(const torch::nn::Module& module) {
  ReplicatedState state;
  state.add(module);
  return state;
}

// What must stay as it is: buffers only if they are broadcast.
ReplicatedState settled_state(
    const torch::nn::Module& module, const FullyShardedDataParallelOptions& options) {
  ReplicatedState state = state_of_module(module);
  if (!options.broadcast_buffers()) state.buffers.clear();
  return state;
}

std::vector<torch::Tensor> values_of(const NamedTensors& named) {
  std::vector<torch::Tensor> values;
  for (const auto& entry : named) values.push_back(entry.second);
  return values;
}

void check_can_be_sharded(const ReplicatedState& state, const ProcessGroup& group) {
  NamedTensors all;
  for (const auto& [name, parameter] : state.parameters) {
    const char* const kind = parameter.requires_grad() ? "" : " (frozen)";
    all.emplace_back(concat(name, kind, " with strides ", parameter.strides()), parameter);
  }
  all.insert(all.end(), state.buffers.begin(), state.buffers.end());
  check_same_on_all_ranks("FullyShardedDataParallel: the model's tensors", all, group);
  check(state.sparse.empty(), "FullyShardedDataParallel: the gradient of ",
      state.sparse.empty() ? "" : *state.sparse.begin(),
      " is sparse, but only dense ones can be averaged in shards; make the embedding without "
      "sparse(true)");
  for (const auto& [name, parameter] : state.parameters) {
    const torch::Device device = state.parameters.front().second.device();
    check(parameter.device() == device, "FullyShardedDataParallel: ", name, " is on ",
        parameter.device(), " and ", state.parameters.front().first, " on ", device,
        "; move the module to one device");
  }
}

/// What parameters that are gathered together have in common: the units that use them, type,
/// whether they are trained, and whether autocast casts them.
using FlatKey = std::tuple<std::set<std::size_t>, at::ScalarType, bool, bool>;

std::optional<at::ScalarType> type_of_autocast(torch::Device device) {
  if (!at::autocast::is_autocast_enabled(device.type())) return std::nullopt;
  return at::autocast::get_autocast_dtype(device.type());
}

/// The parameters that are read in their own type, by one of the modules that have them.
std::set<const void*> read_as_they_are(
    const torch::nn::Module& module, const FullyShardedDataParallelOptions& options) {
  std::set<const void*> read;
  for (const auto& each : module.modules()) {
    const bool is_cast = options.casts() && options.casts()(*each);
    for (const auto& parameter : each->named_parameters(/*recurse=*/false))
      if (!is_cast || parameter.value().scalar_type() != torch::kFloat)
        read.insert(parameter.value().unsafeGetTensorImpl());
  }
  return read;
}

// Whether it may compute again, by a checkpoint, and read what the graph does not show. Our kernels
// do not; they count as LibTorch's, since another processor may have others, and ranks must gather
// alike.
bool is_custom(const torch::autograd::Node& node) {
  const std::string name = node.name();
  return name.starts_with("torch::autograd::CppNode<") &&
         !name.starts_with("torch::autograd::CppNode<lockstep::nn::");
}

// Returns whether backward from a unit's outputs, to what it was given, reads none of a flat
// parameter: that of an embedding, often the largest of all, takes the numbers of its rows alone.
bool is_unread(const FlatParameter& flat, const std::vector<torch::Tensor>& outputs,
    const std::vector<const void*>& entered) {
  std::set<const void*> seen(entered.begin(), entered.end());
  std::vector<torch::autograd::Node*> open;
  const auto reach = [&](torch::autograd::Node* node) {
    if (node != nullptr && seen.insert(node).second) open.push_back(node);
  };
  for (const torch::Tensor& output : outputs)
    if (output.defined()) reach(output.grad_fn().get());
  std::set<std::size_t> looked_up;
  while (!open.empty()) {
    torch::autograd::Node* const node = open.back();
    open.pop_back();
    if (is_custom(*node)) return false;
    for (const torch::autograd::Edge& edge : node->next_edges()) {
      reach(edge.function.get());
      const auto* const leaf =
          dynamic_cast<const torch::autograd::AccumulateGrad*>(edge.function.get());
      const auto index = leaf == nullptr ? std::nullopt : flat.index_of(leaf->variable);
      if (!index) continue;
      if (node->name() != "EmbeddingBackward0") return false;
      looked_up.insert(*index);
    }
  }
  return looked_up.size() == flat.size();
}

bool has(const std::vector<std::size_t>& flats, std::size_t flat) {
  return std::ranges::find(flats, flat) != flats.end();
}

/// A scope whose work, on this thread's stream, comes after what another stream was given, and
/// before what that is given later.
class InTurn {
 public:
  explicit InTurn(const std::optional<c10::Stream>& other) : other_(other) {
    if (other_) wait_for(current_stream(other_->device()), *other_);
  }
  ~InTurn() {
    if (other_) wait_for(*other_, current_stream(other_->device()));
  }
  InTurn(const InTurn&) = delete;
  InTurn& operator=(const InTurn&) = delete;

 private:
  std::optional<c10::Stream> other_;
};

}  // namespace

ShardedUnits::ShardedUnits(const torch::nn::Module& module, const Units& units, ProcessGroup group,
    const FullyShardedDataParallelOptions& options)
    : group_(std::move(group)),
      groups_(group_, options.replicas()),
      options_(options),
      record_(settled_state(module, options)),
      pools_(groups_.shards) {
  const ReplicatedState state = state_of_module(module);
  check_can_be_sharded(state, group_);
  const at::ScalarType sent = options.gradient_type().value_or(torch::kHalf);
  check(sent == torch::kHalf || sent == torch::kBFloat16,
      "FullyShardedDataParallel: gradients are sent as they are, as Half or as BFloat16, not as ",
      c10::toString(sent));
  if (!state.parameters.empty()) device_ = state.parameters.front().second.device();
  broadcast_all(values_of(state.buffers), 0, group_);
  if (options.broadcast_buffers()) buffers_ = values_of(state.buffers);
  if (options.sync_batch_norm()) norm_group_ = group_.split(0, group_.rank());
  make_flats(module, units);
  attach();
  follow_stream();  // on which the parts have come
}

ShardedUnits::~ShardedUnits() = default;

void ShardedUnits::make_flats(const torch::nn::Module& module, const Units& units) {
  std::map<const void*, std::set<std::size_t>> users;
  for (std::size_t unit = 0; unit < units.size(); ++unit)
    for (const auto& entry : units[unit]) users[entry.second.unsafeGetTensorImpl()].insert(unit);
  const std::set<const void*> read = read_as_they_are(module, options_);
  std::map<FlatKey, NamedTensors> members;
  std::map<const void*, std::size_t> places;  // of the parameters in the module
  std::map<std::pair<const void*, std::int64_t>, std::string> memory;
  for (const auto& parameter : module.named_parameters()) {
    const torch::Tensor& tensor = parameter.value();
    const void* const own = tensor.unsafeGetTensorImpl();
    if (!places.emplace(own, places.size()).second) continue;
    check(users.contains(own), "FullyShardedDataParallel: the parameter ", parameter.key(),
        " belongs to no layer of the chain");
    const auto [first, is_new] =
        memory.emplace(std::pair(tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset()),
            parameter.key());
    check(is_new || tensor.numel() == 0, "FullyShardedDataParallel: the parameters ", first->second,
        " and ", parameter.key(),
        " are two tensors in one memory, which would be sharded apart; register one tensor under "
        "both names");
    const FlatKey key{
        users[own], tensor.scalar_type(), tensor.requires_grad(), !read.contains(own)};
    members[key].emplace_back(parameter.key(), tensor);
  }
  flats_of_.resize(units.size());
  order_.resize(places.size());
  for (const auto& [key, parameters] : members) {
    for (const std::size_t unit : std::get<0>(key)) flats_of_[unit].push_back(flats_.size());
    first_unit_.push_back(*std::get<0>(key).begin());
    for (std::size_t index = 0; index < parameters.size(); ++index)
      order_[places[parameters[index].second.unsafeGetTensorImpl()]] = {flats_.size(), index};
    initialise(parameters);
    flats_.push_back(std::make_unique<FlatParameter>(
        parameters, groups_, pools_, TravelTypes{std::get<3>(key), options_.gradient_type()}));
    release_host_memory();  // that of whole ones, before the next are initialised
  }
  options_.param_init_fn(nullptr);  // it may hold a file
  seen_versions_.resize(flats_.size());
  reduced_.resize(flats_.size());
}

// The values of rank 0 are those of all.
void ShardedUnits::initialise(const NamedTensors& parameters) const {
  if (!options_.param_init_fn() || group_.rank() != 0) return;
  const torch::NoGradGuard no_gradients;
  try {
    options_.param_init_fn()(parameters);
  } catch (const std::exception& error) {
    const std::string text = concat("FullyShardedDataParallel: param_init_fn: ", error.what());
    group_.abort(text);
    groups_.abort(text);
    throw;
  }
}

void ShardedUnits::attach() {
  for (std::size_t flat = 0; flat < flats_.size(); ++flat)
    for (std::size_t index = 0; flats_[flat]->is_trained() && index < flats_[flat]->size(); ++index)
      hooks_.add(flats_[flat]->parameter(index), [this, flat, index] { on_gradient(flat, index); });
}

// The others wait for this rank, so they must learn the reason.
void ShardedUnits::fail(const std::string& reason) const {
  const std::string text = concat("FullyShardedDataParallel: ", reason);
  group_.abort(text);
  groups_.abort(text);
  throw InvalidArgument(text);
}

void ShardedUnits::hold(const std::vector<std::size_t>& now, const std::vector<std::size_t>& next) {
  const bool keeps = options_.reshard() == Reshard::kNever;
  for (std::size_t flat = 0; flat < flats_.size() && !keeps; ++flat)
    if (!has(now, flat) && !has(next, flat)) flats_[flat]->release();
  for (const auto* const flats : {&now, &next})
    for (const std::size_t flat : *flats) flats_[flat]->begin_gather(cast_);
  const Stopwatch watch;
  for (const std::size_t flat : now) flats_[flat]->finish_gather();
  waited_seconds_ += watch.seconds();
}

void ShardedUnits::follow_stream() {
  if (device_.is_cpu()) return;
  const c10::Stream now = current_stream(device_);
  if (stream_ && *stream_ != now) wait_for(now, *stream_);
  stream_ = now;
}

void ShardedUnits::begin_forward(const torch::nn::Module& module) {
  check(!is_unwrapped_, "FullyShardedDataParallel: the module was unwrapped; wrap it again");
  check(torch::autograd::get_current_graph_task_id() == -1,
      "FullyShardedDataParallel: a forward inside a backward, which needs the memory");
  if (in_pass_) {
    fail(concat("an earlier backward of rank ", group_.rank(),
        " ended with an exception and lost its gradients; make a new model from a snapshot"));
  }
  const std::string change = record_.change(settled_state(module, options_));
  if (!change.empty()) {
    fail(concat("the module is not what it was when it was wrapped: ", change,
        "; make such changes before, or wrap it again"));
  }
  follow_stream();
  release_all();  // an optimizer may have changed the parts since
  cast_ = type_of_autocast(device_);
  read_before_.clear();
  expects_backward_ = false;
  if (!module.is_training() || !torch::GradMode::is_enabled()) return;
  const bool begins = std::exchange(was_synchronised_, synchronised_);
  if (!begins || buffers_.empty()) return;
  // A graph may have saved them: of two forwards before one backward.
  const at::AutoDispatchBelowADInplaceOrView without_new_versions;
  broadcast_all(buffers_, 0, group_);
}

void ShardedUnits::enter_forward(std::size_t unit, const std::vector<torch::Tensor>& inputs) {
  const bool is_last = unit + 1 == flats_of_.size();
  hold(flats_of_[unit], is_last ? std::vector<std::size_t>() : flats_of_[unit + 1]);
  entered_.clear();
  for (const torch::Tensor& input : inputs)
    if (input.defined() && input.requires_grad()) entered_.push_back(input.grad_fn().get());
  if (!torch::GradMode::is_enabled()) return;
  for (const std::size_t flat : flats_of_[unit]) seen_versions_[flat] = flats_[flat]->version();
}

// Whoever takes a view of a parameter needs its memory.
void ShardedUnits::lend_to_later(std::size_t unit, const std::vector<torch::Tensor>& outputs) {
  for (const std::size_t flat : flats_of_[unit]) {
    const bool is_handed_on = std::ranges::any_of(
        outputs, [&](const torch::Tensor& output) { return flats_[flat]->holds(output); });
    for (std::size_t later = unit + 1; is_handed_on && later < flats_of_.size(); ++later)
      if (!has(flats_of_[later], flat)) flats_of_[later].push_back(flat);
  }
}

namespace {

// Returns whether nothing but a tensor, and what it is a view of, has its memory.
bool has_memory_alone(const torch::Tensor& tensor) {
  const bool is_view = tensor.is_view();
  return tensor.use_count() == 1 && tensor.storage().use_count() == (is_view ? 2 : 1) &&
         (!is_view || tensor._base().use_count() == 1);
}

}  // namespace

/// The end of what comes back to a unit for a parameter that it was handed.
class ShardedUnits::HandedOn final : public torch::autograd::Node {
 public:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const auto units = owner.lock();
    torch::Tensor gradient = std::move(gradients.front());
    if (!units || !gradient.defined()) return {};
    if (!has_memory_alone(gradient)) gradient = gradient.clone();  // averages may go there
    units->on_gradient(flat, index, std::move(gradient));
    return {};
  }
  std::string name() const override { return "FullyShardedHandedOn"; }

  std::weak_ptr<ShardedUnits> owner;
  std::size_t flat = 0, index = 0;
};

// Returns nothing for a tensor that is no parameter.
torch::Tensor ShardedUnits::handed_on(const torch::Tensor& output) {
  for (std::size_t flat = 0; flat < flats_.size(); ++flat) {
    const auto index = flats_[flat]->index_of(output);
    if (!index) continue;
    auto node = data_parallel::make_node<HandedOn>();
    node->owner = weak_from_this();
    node->flat = flat;
    node->index = *index;
    torch::Tensor own = output.detach();
    torch::autograd::create_gradient_edge(own, std::move(node));
    return own;
  }
  return {};
}

// What is handed on as it came has no part in the unit.
void ShardedUnits::leave_forward(std::size_t unit, std::vector<torch::Tensor>& outputs) {
  lend_to_later(unit, outputs);
  if (!torch::GradMode::is_enabled()) return;
  const bool is_last = unit + 1 == flats_of_.size();
  for (torch::Tensor& output : outputs) {
    if (is_last || !output.defined() || !output.requires_grad()) continue;
    if (torch::Tensor own = handed_on(output); own.defined()) output = std::move(own);
  }
  const auto own =
      std::make_shared<Computed>(Computed{unit, cast_, {}, std::exchange(read_before_, {})});
  for (const std::size_t flat : flats_of_[unit])
    if (!is_unread(*flats_[flat], outputs, entered_)) own->read.push_back(flat);
  for (const torch::Tensor& output : outputs) {
    if (!output.defined() || !output.requires_grad() || output.is_leaf()) continue;
    if (dynamic_cast<const HandedOn*>(output.grad_fn().get()) != nullptr) continue;
    if (std::ranges::find(entered_, output.grad_fn().get()) != entered_.end()) continue;
    expects_backward_ = true;
    read_before_ = own->read;  // else backward does not come here
    output.register_hook([self = weak_from_this(), own](const torch::Tensor&) {
      if (const auto units = self.lock()) units->enter_backward(*own);
    });
  }
}

void ShardedUnits::end_forward() {
  if (!expects_backward_) release_all();
}

void ShardedUnits::join_forward(const torch::nn::Module& module) {
  const torch::NoGradGuard no_gradients;
  begin_forward(module);
  for (std::size_t unit = 0; unit < flats_of_.size(); ++unit) enter_forward(unit, {});
  end_forward();
}

std::unique_ptr<SyncBatchNormScope> ShardedUnits::synchronised_batch_norm(bool training) const {
  if (!training || !norm_group_) return nullptr;
  return std::make_unique<SyncBatchNormScope>(*norm_group_);
}

std::unique_ptr<OperatorRulesOn> ShardedUnits::gathered_casts() const {
  return cast_ ? std::make_unique<OperatorRulesOn>() : nullptr;
}

// Backward.

void ShardedUnits::begin_pass() {
  check_keeps_no_changes();
  in_pass_ = true;
  current_.reset();
  reduced_.assign(flats_.size(), false);
  torch::autograd::Engine::get_default_engine().queue_callback([this] {
    const std::lock_guard lock(mutex_);
    const torch::NoGradGuard no_gradients;
    const InTurn turn(stream_);
    end_pass();
  });
}

void ShardedUnits::check_parts_unchanged(std::size_t unit) const {
  for (const std::size_t flat : flats_of_[unit]) {
    if (flats_[flat]->version() == seen_versions_[flat]) continue;
    fail(concat("the parameters were changed between forward and backward on rank ", group_.rank(),
        ", as by a step of the optimizer; call backward() first"));
  }
}

void ShardedUnits::enter_backward(const Computed& forward) {
  sign_of_life();
  const torch::NoGradGuard no_gradients;
  const std::lock_guard lock(mutex_);
  if (!in_pass_) begin_pass();
  follow_stream();
  // What is entered again, from another use of it, may have to be gathered for that.
  const bool are_whole = std::ranges::all_of(
      forward.read, [this](std::size_t flat) { return flats_[flat]->is_whole(); });
  if (current_ == forward.unit && cast_ == forward.cast && are_whole) return;
  cast_ = forward.cast;
  check_parts_unchanged(forward.unit);
  leave_backward();
  hold(forward.read, forward.read_before);
  release_unread(forward);
  current_ = forward.unit;
}

// An embedding that was whole until now, or its memory, leaves room for its gradient.
void ShardedUnits::release_unread(const Computed& forward) {
  if (forward.read.size() == flats_of_[forward.unit].size()) return;
  for (const std::size_t flat : flats_of_[forward.unit])
    if (!has(forward.read, flat) && !has(forward.read_before, flat)) flats_[flat]->release();
  if (device_.is_cpu()) pools_.parameters.clear();  // elsewhere a stream may still use it
}

void ShardedUnits::leave_backward() {
  if (!current_ || !synchronised_) return;
  for (const std::size_t flat : flats_of_[*current_]) {
    const bool is_complete = flats_[flat]->is_trained() && flats_[flat]->has_all_gradients();
    if (is_complete && first_unit_[flat] == *current_) reduce(flat);
  }
}

void ShardedUnits::on_gradient(std::size_t flat, std::size_t index, torch::Tensor alone) {
  sign_of_life();
  const bool create_graph = torch::GradMode::is_enabled();
  const torch::NoGradGuard no_gradients;
  const std::lock_guard lock(mutex_);
  if (create_graph) {
    fail(concat("backward with create_graph reached ", flats_[flat]->part(index).name,
        ", but what is averaged over ranks cannot be differentiated again"));
  }
  // Refused below: the next backward must not add to it.
  if (keeps_changes_) flats_[flat]->parameter(index).mutable_grad().reset();
  if (!in_pass_) begin_pass();
  {
    const InTurn turn(stream_);
    FlatParameter& own = *flats_[flat];
    const bool is_alone = alone.defined();
    if (is_alone)
      own.add_gradient(index, std::move(alone));
    else
      own.take_gradient(index);
    if (is_alone && synchronised_ && own.size() == 1) reduce(flat);
    for (const Flat& each : flats_) each->poll();
  }
}

// One at a time beside those that backward fills.
void ShardedUnits::reduce(std::size_t flat) {
  const Stopwatch watch;
  if (reducing_) flats_[*reducing_]->finish_reduce();
  waited_seconds_ += watch.seconds();
  flats_[flat]->begin_reduce();
  reducing_ = flat;
  reduced_[flat] = true;
}

void ShardedUnits::end_pass() {
  leave_backward();
  if (synchronised_) reduce_rest();
  release_all();
  current_.reset();
  in_pass_ = false;
}

// A backward that reaches no parameter, such as one of torch::autograd::grad, does not count.
void ShardedUnits::reduce_rest() {
  std::vector<std::string> missing;
  bool is_pass = false;
  for (std::size_t flat = 0; flat < flats_.size(); ++flat) {
    const FlatParameter& own = *flats_[flat];
    is_pass = is_pass || reduced_[flat] || own.has_gradients();
    const bool is_settled = reduced_[flat] && !own.has_gradients();
    for (std::size_t index = 0; own.is_trained() && !is_settled && index < own.size(); ++index)
      if (!own.has_gradient(index)) missing.push_back(own.part(index).name);
  }
  if (!is_pass) return;
  if (!missing.empty()) {
    fail(concat("backward on rank ", group_.rank(), " gave no gradient to ", joined(missing),
        "; freeze what is not to be trained, by requires_grad_(false), before it is wrapped"));
  }
  for (std::size_t flat = 0; flat < flats_.size(); ++flat)
    if (flats_[flat]->has_gradients()) reduce(flat);
  const Stopwatch watch;
  for (const Flat& flat : flats_) flat->finish_reduce();
  waited_seconds_ += watch.seconds();
  reducing_.reset();
}

void ShardedUnits::reduce_accumulated() {
  const std::lock_guard lock(mutex_);
  check(!in_pass_, "reduce_accumulated: a backward pass is under way; call it after backward()");
  reduced_.assign(flats_.size(), false);
  reduce_rest();
  was_synchronised_ = true;
}

// They would be lost with the memory.
void ShardedUnits::check_keeps_no_changes() const {
  check(!keeps_changes_,
      "FullyShardedDataParallel: a forward, backward or whole() inside of whole(true) would lose "
      "what was changed; end that scope first, or call the module itself without gradients");
}

void ShardedUnits::gather_all(bool keeps_changes) {
  follow_stream();
  release_all();
  for (const Flat& flat : flats_) flat->begin_gather();
  for (const Flat& flat : flats_) flat->finish_gather();
  keeps_changes_ = keeps_changes;
}

void ShardedUnits::release_all() {
  check_keeps_no_changes();
  for (const Flat& flat : flats_) flat->release();
}

void ShardedUnits::end_whole(bool changed) {
  for (const Flat& flat : flats_)
    if (changed && flat->is_whole()) flat->keep_part_of_whole();
  keeps_changes_ = false;
  release_all();
  pools_.parameters.clear();
}

void ShardedUnits::unwrap() {
  follow_stream();
  release_all();
  hooks_.clear();
  for (const Flat& flat : flats_) {
    flat->begin_gather();
    flat->finish_gather();
    flat->give_back();
    flat->release();
  }
  pools_.parameters.clear();
  pools_.parts.clear();
  pools_.gradients.clear();
  is_unwrapped_ = true;
}

void ShardedUnits::visit_whole(const std::function<void(const NamedTensors&)>& visitor) {
  follow_stream();
  release_all();
  for (std::size_t next = 0; next < order_.size();) {
    const std::size_t own = order_[next].first;
    FlatParameter& flat = *flats_[own];
    flat.begin_gather();
    flat.finish_gather();
    NamedTensors whole;
    for (; next < order_.size() && order_[next].first == own; ++next) {
      const std::size_t index = order_[next].second;
      whole.emplace_back(flat.part(index).name, flat.parameter(index).detach());
    }
    visitor(whole);
    flat.release();
  }
}

std::vector<ParameterPart> ShardedUnits::all_parts() const {
  std::vector<ParameterPart> parts;
  for (const auto& [flat, index] : order_) parts.push_back(flats_[flat]->part(index));
  return parts;
}

std::vector<ParameterPart> ShardedUnits::parts() const {
  std::vector<ParameterPart> parts = all_parts();
  std::erase_if(parts, [](const ParameterPart& part) { return !part.tensor.defined(); });
  return parts;
}

ShardingReport ShardedUnits::report() const {
  ShardingReport report{.units = flats_of_.size(),
      .peak_of_wholes = pools_.parameters.peak_bytes(),
      .peak_of_gradients = pools_.gradients.peak_bytes()};
  for (const Flat& flat : flats_) report.gathers += flat->gathers();
  for (const ParameterPart& part : parts())
    report.bytes_of_parts += static_cast<std::int64_t>(part.tensor.nbytes());
  return report;
}

// Chains.

namespace {

NamedTensors parameters_of_layers(const Layers& layers, const std::vector<std::size_t>& chosen) {
  NamedTensors parameters;
  for (const std::size_t index : chosen)
    for (const auto& parameter : layers[index].value().ptr()->named_parameters())
      parameters.emplace_back(concat(layers[index].key(), ".", parameter.key()), parameter.value());
  return parameters;
}

std::vector<std::int64_t> bytes_of_layers(const Layers& layers) {
  std::vector<std::int64_t> bytes;
  for (const auto& layer : layers) {
    bytes.push_back(0);
    for (const torch::Tensor& parameter : parameters_of(*layer.value().ptr()))
      bytes.back() += static_cast<std::int64_t>(parameter.nbytes());
  }
  return bytes;
}

ShardedUnits::Units units_of(
    const Layers& layers, const std::vector<std::vector<std::size_t>>& joined) {
  ShardedUnits::Units units;
  for (const auto& chosen : joined) units.push_back(parameters_of_layers(layers, chosen));
  return units;
}

}  // namespace

ShardedChain::ShardedChain(const torch::nn::Module& module, const Layers& layers,
    ProcessGroup group, const FullyShardedDataParallelOptions& options)
    : layers_(layers),
      checkpoint_(options.checkpoint()),
      units_(join_to_units(bytes_of_layers(layers), options.unit_bytes())),
      sharded_(std::make_shared<ShardedUnits>(
          module, units_of(layers, units_), std::move(group), options)) {
  if (checkpoint_) check_can_be_computed_again(layers_);
}

torch::nn::AnyValue ShardedChain::forward(
    const torch::nn::Module& module, torch::nn::AnyValue value) {
  sharded_->begin_forward(module);
  const auto norms = sharded_->synchronised_batch_norm(module.is_training());
  const auto casts = sharded_->gathered_casts();
  for (std::size_t unit = 0; unit < units_.size(); ++unit) value = forward(unit, std::move(value));
  sharded_->end_forward();
  return value;
}

torch::nn::AnyValue ShardedChain::forward(std::size_t unit, torch::nn::AnyValue value) {
  ValueForm form = ValueForm::kTensor;
  const std::vector<torch::Tensor> inputs = tensors_of(value, form);
  sharded_->enter_forward(unit, inputs);
  value = value_of(form, inputs);
  for (const std::size_t index : units_[unit]) {
    const SpanScope span(Activity::kLayer, layers_[index].key());
    torch::nn::AnyModule& layer = layers_[index].value();
    value = checkpoint_ ? checkpoint(layer, std::move(value)) : layer.any_forward(std::move(value));
  }
  std::vector<torch::Tensor> outputs = tensors_of(value, form);
  sharded_->leave_forward(unit, outputs);
  // Nothing needs this unit's weights in a shorter type any more; autocast would keep those of all.
  if (checkpoint_ || !torch::GradMode::is_enabled()) at::autocast::clear_cache();
  return value_of(form, outputs);
}

}  // namespace lockstep
