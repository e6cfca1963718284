#pragma once

#include <vector>

#include <sys/types.h>

namespace lockstep::launch {

/// Makes this process the parent of its descendants whose own parent ends, for as long as it lives.
class Subreaper {
 public:
  Subreaper();
  Subreaper(const Subreaper&) = delete;
  Subreaper& operator=(const Subreaper&) = delete;
  ~Subreaper();

 private:
  int before_ = 0;
};

/// Lists the children of the calling thread's process, dead ones that nobody has waited for
/// included.
std::vector<pid_t> children();

/// Waits for those dead children that are not among `known`.
void reap_strays(const std::vector<pid_t>& known);

/// Kills all children that are not among `known`, also those that become ours by that, and waits
/// for them.
void kill_strays(const std::vector<pid_t>& known);

}  // namespace lockstep::launch
