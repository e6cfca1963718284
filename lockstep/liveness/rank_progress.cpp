#include "lockstep/liveness/rank_progress.h"

#include <algorithm>

namespace lockstep {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

GroupProgress read_group(const GroupSlot& slot, std::uint64_t id) {
  const std::uint64_t place = slot.place.load(kRelaxed);
  GroupProgress group{.id = id,
      .rank = static_cast<int>(place >> 32U),
      .size = static_cast<int>(place & 0xffffffffU),
      .begun = slot.begun.load(kRelaxed),
      .last = GroupCall::of_word(slot.last.load(kRelaxed))};
  if (slot.waits.load(std::memory_order_acquire) > 0)
    group.wait = {
        GroupCall::of_word(slot.waited.load(kRelaxed)), slot.waited_number.load(kRelaxed)};
  return group;
}

}  // namespace

const GroupProgress* RankProgress::waiting() const {
  const auto found = std::find_if(
      groups.begin(), groups.end(), [](const GroupProgress& group) { return group.wait; });
  return found == groups.end() ? nullptr : &*found;
}

RankProgress read_progress(const ProgressSlot& slot) {
  RankProgress progress;
  const std::int64_t step = slot.step.load(kRelaxed);
  if (step >= 0) progress.step = step;
  progress.has_stepped = slot.first_step_ns.load(kRelaxed) > 0;
  progress.activity = static_cast<std::uint64_t>(step) + slot.signs.load(kRelaxed);
  progress.rescue = slot.rescue.load(kRelaxed);
  progress.process = slot.process.load(std::memory_order_acquire);
  for (const GroupSlot& group : slot.groups) {
    progress.activity += group.begun.load(kRelaxed) + group.events.load(kRelaxed);
    if (const std::uint64_t id = group.id.load(std::memory_order_acquire))
      progress.groups.push_back(read_group(group, id));
  }
  return progress;
}

}  // namespace lockstep
