#pragma once

#include <chrono>
#include <sys/types.h>
#include <vector>

namespace lockstep::launch {

/// Makes this process the parent of its descendants whose own parent ends, while this object
/// exists.
class Subreaper {
 public:
  Subreaper();
  Subreaper(const Subreaper&) = delete;
  Subreaper& operator=(const Subreaper&) = delete;
  ~Subreaper();

 private:
  int before_ = 0;
};

/// Returns the children of the calling thread's process, including dead ones that were not waited
/// for.
std::vector<pid_t> children();

/// Waits for those dead children that are not among `known`.
void reap_strays(const std::vector<pid_t>& known);

/// Kills all children that are not among `known`, including those that become ours by that, and
/// waits for their end. Returns those that are left: another user's, which may not be killed, and
/// those that the kernel holds for longer than `patience`.
std::vector<pid_t> kill_strays(
    const std::vector<pid_t>& known, std::chrono::milliseconds patience = std::chrono::seconds(2));

}  // namespace lockstep::launch
