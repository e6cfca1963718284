#include "lockstep/liveness/own_slot.h"

#include <mutex>
#include <unistd.h>

#include "lockstep/core/environment.h"
#include "lockstep/liveness/progress_page.h"
#include "lockstep/liveness/stack_answer.h"

namespace lockstep {
namespace {

// Never unmapped: threads may write to it until the process has ended.
ProgressSlot* attach_for_life() {
  const auto path = environment("LOCKSTEP_PROGRESS");
  if (!path) return nullptr;
  auto mapped = map_slot(*path, environment_count("LOCAL_RANK").value_or(0));
  if (!mapped) return nullptr;
  static_cast<void>(mapped->memory.release());
  ProgressSlot* const slot = mapped->slot;
  if (answer_for_stack(*slot, *path))
    slot->stack_signal.store(stack_signal(), std::memory_order_relaxed);
  slot->process.store(::getpid(), std::memory_order_release);
  attached_slot.store(slot, std::memory_order_release);
  return slot;
}

}  // namespace

ProgressSlot* own_slot() {
  static std::mutex attaching;
  const std::lock_guard lock(attaching);
  ProgressSlot* const slot = attached_slot.load(std::memory_order_acquire);
  return slot != nullptr ? slot : attach_for_life();
}

}  // namespace lockstep
