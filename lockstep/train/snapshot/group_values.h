#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "lockstep/comm/process_group.h"

namespace lockstep {

/// Makes each of these numbers the largest that any rank has. A collective.
///
///     maximize({&seconds, &signal}, world);
void maximize(std::initializer_list<double*> numbers, const ProcessGroup& group);

/// Returns the root's text on all ranks. A collective.
std::string broadcast_text(const std::string& text, int root, const ProcessGroup& group);

/// Returns the texts of all ranks, in rank order, on the root; nothing on the others. A collective.
std::vector<std::string> gather_texts(const std::string& text, int root, const ProcessGroup& group);

/// Returns the texts of all ranks, in rank order, on every rank. A collective.
std::vector<std::string> all_texts(const std::string& text, const ProcessGroup& group);

/// Does something on each rank, and returns what it threw, of all ranks in their order, with the
/// names of their hosts; empty if it threw nothing. A collective.
std::string failures_of(const std::function<void()>& work, const ProcessGroup& group);

/// Does something on rank 0 alone; what it throws there is thrown on all ranks, so that none waits
/// for the others. A collective.
void do_on_root(const std::function<void()>& work, const ProcessGroup& group);

}  // namespace lockstep
