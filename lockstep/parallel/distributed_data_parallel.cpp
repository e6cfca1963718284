#include "lockstep/parallel/distributed_data_parallel.h"

#include <algorithm>
#include <memory>
#include <unordered_set>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/parallel/ddp/replicated_state.h"

namespace lockstep {
namespace {

constexpr std::int64_t kEnded = -1;

ReplicatedState state_of(const torch::nn::Module& module) {
  ReplicatedState state;
  state.add(module);
  return state;
}

// A tied tensor is listed once per name; it is one gradient.
NamedTensors trained_parameters(const NamedTensors& parameters) {
  NamedTensors trained;
  std::unordered_set<const void*> seen;
  for (const auto& [name, parameter] : parameters) {
    if (parameter.requires_grad() && seen.insert(parameter.unsafeGetTensorImpl()).second)
      trained.emplace_back(name, parameter);
  }
  return trained;
}

std::vector<torch::Tensor> tensors_of(const NamedTensors& named) {
  std::vector<torch::Tensor> tensors;
  for (const auto& entry : named) tensors.push_back(entry.second);
  return tensors;
}

// What averaging needs to be alike, besides type and shape: gradients are averaged in the order of
// the parameter's memory.
std::string described(const std::string& name, const torch::Tensor& parameter) {
  std::string text = name;
  if (!parameter.requires_grad()) text += " (frozen)";
  if (!parameter.is_contiguous()) text += concat(" (strides ", parameter.strides(), ")");
  return text;
}

// What must stay as it is: buffers only if they are broadcast.
ReplicatedState settled(ReplicatedState kept, const DistributedDataParallelOptions& options) {
  if (!options.broadcast_buffers()) kept.buffers.clear();
  return kept;
}

// Checks first: the reducer's own collectives need equal shapes of the same parameters.
NamedTensors agreed_parameters(const ReplicatedState& state, const ProcessGroup& group) {
  NamedTensors all;
  for (const auto& [name, parameter] : state.parameters)
    all.emplace_back(described(name, parameter), parameter);
  all.insert(all.end(), state.buffers.begin(), state.buffers.end());
  check_same_on_all_ranks("DistributedDataParallel: the model's tensors", all, group);
  broadcast_all(tensors_of(all), 0, group);
  return trained_parameters(state.parameters);
}

ReducerOptions reducer_options(
    const ReplicatedState& state, const DistributedDataParallelOptions& options) {
  check(options.bucket_bytes() > 0 && options.first_bucket_bytes() > 0,
      "DistributedDataParallel: bucket sizes must be positive: ", options.first_bucket_bytes(),
      " and ", options.bucket_bytes());
  return {.first_bucket_bytes = static_cast<std::size_t>(options.first_bucket_bytes()),
      .bucket_bytes = static_cast<std::size_t>(options.bucket_bytes()),
      .find_unused_parameters = options.find_unused_parameters(),
      .static_graph = options.static_graph(),
      .sparse = state.sparse};
}

}  // namespace

Join::Join(ProcessGroup group, const JoinOptions& options, torch::Device device)
    : group_(std::move(group)), options_(options), device_(device) {}

std::size_t Join::add(std::string name, Shadow shadow) {
  kinds_.push_back({std::move(name), std::move(shadow)});
  return kinds_.size() - 1;
}

Join::Participants Join::announce(std::size_t collective) {
  check(collective < kinds_.size(), "Join::announce: there is no collective ", collective, "; ",
      kinds_.size(), " were added");
  return participants(exchange(static_cast<std::int64_t>(collective)));
}

int Join::finish() {
  bool was_last = true;
  for (;;) {
    const std::vector<std::int64_t> announced = exchange(kEnded);
    const Participants active = participants(announced);
    if (active.empty()) break;
    was_last = false;
    const auto kind = announced[static_cast<std::size_t>(active.front())];
    kinds_[static_cast<std::size_t>(kind)].shadow(active);
  }
  const auto candidates = exchange(was_last ? group_.rank() : kEnded);
  return static_cast<int>(*std::max_element(candidates.begin(), candidates.end()));
}

std::vector<std::int64_t> Join::exchange(std::int64_t own) const {
  const auto type = torch::TensorOptions(torch::kLong).device(device_);
  const torch::Tensor on_device = torch::empty({group_.size()}, type);
  group_.all_gather(on_device, torch::full({1}, own, type)).wait();
  const torch::Tensor all = on_device.cpu();
  const auto* first = all.data_ptr<std::int64_t>();
  return {first, first + all.numel()};
}

// All ranks see the same numbers, so they throw alike.
Join::Participants Join::participants(const std::vector<std::int64_t>& announced) const {
  Participants active;
  std::vector<std::string> ended;
  for (std::size_t rank = 0; rank < announced.size(); ++rank) {
    if (announced[rank] == kEnded) {
      ended.push_back(std::to_string(rank));
      continue;
    }
    active.push_back(static_cast<int>(rank));
    const auto first = static_cast<std::size_t>(active.front());
    if (announced[rank] == announced[first]) continue;
    throw Error(concat("Join: rank ", first, " announces ",
        kinds_[static_cast<std::size_t>(announced[first])].name, " and rank ", rank, " announces ",
        kinds_[static_cast<std::size_t>(announced[rank])].name,
        "; all ranks that still have inputs must do the same"));
  }
  if (options_.throw_on_early_termination() && !ended.empty() && !active.empty())
    throw UnevenInputs(
        concat("Join: no inputs are left on rank ", joined(ended), "; all ranks stop here"));
  return active;
}

GradientSync::GradientSync(const torch::nn::Module& module, ProcessGroup group,
    const DistributedDataParallelOptions& options)
    : GradientSync(state_of(module), std::move(group), options) {}

GradientSync::GradientSync(
    const ReplicatedState& state, ProcessGroup group, const DistributedDataParallelOptions& options)
    : GradientSync(std::move(group), state.without(options.ignored()), options) {}

GradientSync::GradientSync(
    ProcessGroup group, const ReplicatedState& kept, const DistributedDataParallelOptions& options)
    : group_(group),
      options_(options),
      record_(settled(kept, options)),
      parameters_(tensors_of(kept.parameters)),
      buffers_(
          options.broadcast_buffers() ? tensors_of(kept.buffers) : std::vector<torch::Tensor>()),
      reducer_(agreed_parameters(kept, group), group, reducer_options(kept, options)) {
  if (options.sync_batch_norm()) norm_group_ = group_.split(0, group_.rank());
  if (options.comm_hook()) reducer_.register_comm_hook(options.comm_hook());
}

// Evaluation must not need the other ranks: one rank may evaluate alone.
void GradientSync::before_forward(bool training) {
  reducer_.check_no_pass_was_broken_off();
  if (!training || !torch::GradMode::is_enabled()) return;
  const bool begins = std::exchange(was_synchronised_, reducer_.is_synchronised());
  const bool follows = begins && !buffers_.empty();
  int root = 0;
  if (join_ != nullptr) root = join_->announce(follows ? forward_ + 1 : forward_).front();
  if (follows) follow_buffers(root);
}

void GradientSync::before_forward(const torch::nn::Module& module) {
  const bool may_matter = group_.size() > 1 && torch::GradMode::is_enabled();
  if (may_matter) check_unchanged(state_of(module));
  before_forward(module.is_training());
}

void GradientSync::check_unchanged(ReplicatedState now) const {
  if (!options_.ignored().empty()) now = now.without(options_.ignored());
  const std::string change = record_.change(settled(std::move(now), options_));
  if (change.empty()) return;
  const std::string reason = concat(
      "DistributedDataParallel: the module is not what it was when it "
      "was wrapped: ",
      change, "; make such changes before, or wrap it again");
  group_.abort(reason);
  throw InvalidArgument(reason);
}

// A graph may have saved them: of two forwards before one backward.
void GradientSync::follow_buffers(int root) const {
  const at::AutoDispatchBelowADInplaceOrView without_new_versions;
  broadcast_all(buffers_, root, group_);
}

std::unique_ptr<SyncBatchNormScope> GradientSync::synchronised_batch_norm(bool training) const {
  if (!training || !norm_group_) return nullptr;
  return std::make_unique<SyncBatchNormScope>(*norm_group_);
}

NoSync::NoSync(std::shared_ptr<GradientSync> sync)
    : sync_(std::move(sync)), before_(sync_->reducer().is_synchronised()) {
  sync_->reducer().set_synchronised(false);
}

NoSync::~NoSync() {
  if (sync_) sync_->reducer().set_synchronised(before_);
}

torch::Device GradientSync::device() const {
  return parameters_.empty() ? torch::Device(torch::kCPU) : parameters_.front().device();
}

// The order of adding is the same on all ranks: forward, forward with buffers, then the passes.
void GradientSync::add_to(Join& join, const JoinOptions& options) {
  forward_ = join.add("forward", [](const Join::Participants&) {});
  join.add("forward with buffers",
      [this](const Join::Participants& active) { follow_buffers(active.front()); });
  const auto divisor = [this, all = options.divide_by_initial_world_size()](
                           const Join::Participants& active) {
    return all ? group_.size() : static_cast<int>(active.size());
  };
  const auto add_pass = [&](const char* name, Reducer::Pass pass) {
    return join.add(name, [this, divisor, pass](const Join::Participants& active) {
      reducer_.shadow(pass, divisor(active));
    });
  };
  const std::size_t backward = add_pass("backward", Reducer::Pass::kBackward);
  const std::size_t accumulated = add_pass("reduce_accumulated", Reducer::Pass::kAccumulated);
  reducer_.set_announcement([&join, divisor, backward, accumulated](Reducer::Pass pass) {
    return divisor(join.announce(pass == Reducer::Pass::kBackward ? backward : accumulated));
  });
}

void GradientSync::join(const std::function<void(Join&)>& body, const JoinOptions& options) {
  check(!norm_group_ || options.throw_on_early_termination(),
      "DistributedDataParallel: join with sync_batch_norm needs "
      "JoinOptions().throw_on_early_termination(true): a rank that has ended has no batch to "
      "normalise with");
  check(join_ == nullptr, "DistributedDataParallel: join inside join");
  Join join(group_, options, device());
  // Ranks that ended early have not seen the others' last forwards: all begin alike again.
  const auto leave = [this](Join*) {
    join_ = nullptr;
    was_synchronised_ = true;
    reducer_.set_announcement(nullptr);
  };
  const std::unique_ptr<Join, decltype(leave)> joining(&join, leave);
  join_ = &join;
  add_to(join, options);
  body(join);
  const int last = join.finish();
  broadcast_all(parameters_, last, group_);
  broadcast_all(buffers_, last, group_);
}

}  // namespace lockstep
