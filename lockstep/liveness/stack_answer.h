#pragma once

#include <string>

#include "lockstep/liveness/slot.h"

namespace lockstep {

/// Returns the signal by which a launcher asks a thread of a rank for its stack: a real-time signal
/// of which neither glibc nor LibTorch nor Python makes use.
int stack_signal();

/// Has that signal answered from now on: the thread that gets it appends `thread ID` and a line for
/// each of its frames to the slot's file, a descriptor of the process of whom `page` is one, and
/// counts the answer. Returns false, and changes nothing, if the program handles the signal itself.
bool answer_for_stack(ProgressSlot& slot, const std::string& page);

}  // namespace lockstep
