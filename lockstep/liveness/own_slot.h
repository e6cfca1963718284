#pragma once

#include <atomic>
#include <cstdint>

#include "lockstep/liveness/slot.h"

namespace lockstep {

/// The slot of this process, once it has attached; null without a launcher of ours.
inline std::atomic<ProgressSlot*> attached_slot{nullptr};

/// Attaches this process to the page that LOCKSTEP_PROGRESS names, once and for its whole life, and
/// has it answer the launcher's question for its stack. Returns its slot; null when no launcher of
/// ours reads it.
ProgressSlot* own_slot();

/// Tells the launcher that this process lives, where work may take longer than the time after which
/// it would be taken to hang. Takes nanoseconds, in any thread.
///
///     for (const Batch& batch : validation) {
///       ...
///       lockstep::sign_of_life();
///     }
inline void sign_of_life() noexcept {
  if (ProgressSlot* const slot = attached_slot.load(std::memory_order_relaxed))
    slot->signs.fetch_add(1, std::memory_order_relaxed);
}

/// Tells the launcher what this process can do when it loses its peers, and how far it is with it:
/// so long it is left alone after a failure, half a second to notice and a minute to save.
inline void report_rescue(RescueState state) noexcept {
  if (ProgressSlot* const slot = attached_slot.load(std::memory_order_relaxed))
    slot->rescue.store(state, std::memory_order_relaxed);
}

}  // namespace lockstep
