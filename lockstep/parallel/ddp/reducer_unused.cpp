// Parameters that a backward pass did not reach, or reached several times.

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/device/host_tensor.h"
#include "lockstep/parallel/ddp/reducer.h"
#include "lockstep/parallel/ddp/reducer_parts.h"

namespace lockstep {

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
