// Parameters that a backward pass did not reach.

#include "lockstep/core/error.h"
#include "lockstep/parallel/ddp/reducer.h"
#include "lockstep/parallel/ddp/reducer_parts.h"

namespace lockstep {

std::vector<std::size_t> Reducer::missing_parameters() const {
  std::vector<std::size_t> missing;
  for (std::size_t index = 0; index < slots_.size(); ++index) {
    if (!slots_[index].ready) missing.push_back(index);
  }
  return missing;
}

void Reducer::complete_missing() {
  const std::vector<std::size_t> missing = missing_parameters();
  if (!options_.find_unused_parameters && !missing.empty()) fail_for_unused(missing);
  for (const std::size_t index : missing) {
    fill(slots_[index]);
    slots_[index].unused = !slots_[index].parameter.grad().defined();
    mark_ready(index);
  }
}

// A gradient that was accumulated under no_sync counts as used, though this pass did not add to it.
torch::Tensor Reducer::used_on_this_rank() const {
  torch::Tensor used = torch::empty({static_cast<std::int64_t>(slots_.size())}, torch::kByte);
  auto* flags = used.data_ptr<std::uint8_t>();
  for (const Slot& slot : slots_) *flags++ = slot.unused ? 0 : 1;
  return slots_.empty() ? used : used.to(slots_.front().parameter.device());
}

void Reducer::agree_on_used() {
  const Timed timed(communication_seconds_);
  const torch::Tensor used = used_on_this_rank();
  group_.all_reduce(used, ReduceOp::kMax).wait();
  const torch::Tensor agreed = used.cpu();
  const auto* flags = agreed.data_ptr<std::uint8_t>();
  for (Slot& slot : slots_) slot.unused = *flags++ == 0;
}

void Reducer::fail_for_unused(const std::vector<std::size_t>& unused) const {
  std::string names;
  for (const std::size_t index : unused) names += (names.empty() ? "" : ", ") + slots_[index].name;
  fail(concat(
      "DistributedDataParallel: backward on rank ",
      group_.rank(),
      " gave no gradient to ",
      names,
      "; if that is meant, construct it with "
      "DistributedDataParallelOptions().find_unused_parameters(true)"));
}

}  // namespace lockstep
