// Training in which the ranks have unequal numbers of inputs.

#include <memory>

#include "lockstep/core/error.h"
#include "lockstep/parallel/ddp/gradient_sync.h"

namespace lockstep {

torch::Device GradientSync::device() const {
  return parameters_.empty() ? torch::Device(torch::kCPU) : parameters_.front().device();
}

// The order of adding is the same on all ranks: forward, forward with buffers, then the passes.
void GradientSync::add_to(Join& join, const JoinOptions& options) {
  forward_ = join.add("forward", [](const Join::Participants&) {});
  join.add("forward with buffers", [this](const Join::Participants& active) {
    broadcast_all(buffers_, active.front(), group_);
  });
  const auto divisor =
      [this, all = options.divide_by_initial_world_size()](const Join::Participants& active) {
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
  check(
      !norm_group_ || options.throw_on_early_termination(),
      "DistributedDataParallel: join with sync_batch_norm needs "
      "JoinOptions().throw_on_early_termination(true): a rank that has ended has no batch to "
      "normalise with");
  check(join_ == nullptr, "DistributedDataParallel: join inside join");
  Join join(group_, options, device());
  const auto leave = [this](Join*) {
    join_ = nullptr;
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
