// Parameters that a backward pass did not reach.

#include "lockstep/core/error.h"
#include "lockstep/parallel/reducer.h"
#include "lockstep/parallel/reducer_parts.h"

namespace lockstep {

std::vector<std::size_t> Reducer::unused_parameters() const {
  std::vector<std::size_t> unused;
  for (std::size_t index = 0; index < slots_.size(); ++index) {
    if (!slots_[index].ready) unused.push_back(index);
  }
  return unused;
}

void Reducer::handle_unused_parameters() {
  const std::vector<std::size_t> unused = unused_parameters();
  if (options_.find_unused_parameters) {
    agree_on_unused(unused);
  } else if (!unused.empty()) {
    fail_for_unused(unused);
  }
  for (const std::size_t index : unused) {
    Slot& slot = slots_[index];
    if (slot.unused) {
      slot.view.zero_();  // reduced with the bucket, but no gradient
    } else {
      fill(slot);
    }
    mark_ready(index);
  }
}

// A gradient that was accumulated under no_sync counts as used, though this pass did not add to it.
void Reducer::agree_on_unused(const std::vector<std::size_t>& unused) {
  const torch::Tensor used = torch::ones({static_cast<std::int64_t>(slots_.size())}, torch::kByte);
  for (const std::size_t index : unused) {
    const bool accumulated = slots_[index].parameter.grad().defined();
    used[static_cast<std::int64_t>(index)] = accumulated ? 1 : 0;
  }
  group_.all_reduce(used, ReduceOp::kMax).wait();
  for (const std::size_t index : unused) {
    slots_[index].unused = used[static_cast<std::int64_t>(index)].item<std::uint8_t>() == 0;
  }
}

void Reducer::fail_for_unused(const std::vector<std::size_t>& unused) {
  std::string names;
  for (const std::size_t index : unused) names += (names.empty() ? "" : ", ") + slots_[index].name;
  const std::string reason = concat(
      "DistributedDataParallel: backward on rank ",
      group_.rank(),
      " gave no gradient to ",
      names,
      "; if that is meant, construct it with "
      "DistributedDataParallelOptions().find_unused_parameters(true)");
  group_.abort(reason);
  throw InvalidArgument(reason);
}

}  // namespace lockstep
