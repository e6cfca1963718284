#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <system_error>
#include <vector>

#include "lockstep/comm/process_group.h"

namespace lockstep {

/// Takes the reason off the end of a text, for a new std::system_error of this code, which adds it
/// again.
std::string without_reason(std::string text, const std::error_code& code);

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

/// Does something on each rank that may take longer than a collective may, as work with files does:
/// meanwhile the ranks meet again and again, so none waits in vain, and that one is lost is found
/// within the group's timeout. `work` makes no calls of `group`; if it makes some of another one,
/// that is `used`, which may wait without end: it is aborted when a rank is lost.
///
/// Returns when all have done it. What it throws is thrown on this rank, at once. A collective.
///
///     work_patiently([&] { data = load_datasets(options); }, world);
void work_patiently(const std::function<void()>& work, const ProcessGroup& group,
    const ProcessGroup* used = nullptr);

/// Does something on each rank, patiently, and returns what it threw, of all ranks in their order,
/// with the names of their hosts; empty if it threw nothing. A collective.
std::string failures_of(const std::function<void()>& work, const ProcessGroup& group,
    const ProcessGroup* used = nullptr);

/// Does something on rank 0 alone, patiently; what it throws there is thrown on all ranks, so that
/// none waits for the others. A collective.
void do_on_root(const std::function<void()>& work, const ProcessGroup& group);

}  // namespace lockstep
