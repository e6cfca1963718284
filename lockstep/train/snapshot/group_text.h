#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"

namespace lockstep {

/// Gives the root's text to all ranks. A collective.
std::string broadcast_text(const std::string& text, int root, const ProcessGroup& group);

/// Gives the texts of all ranks, in rank order, to the root; the others get nothing. A collective.
std::vector<std::string> gather_texts(const std::string& text, int root, const ProcessGroup& group);

}  // namespace lockstep
