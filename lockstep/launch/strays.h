#pragma once

#include <sys/types.h>
#include <vector>

#include "lockstep/core/file_descriptor.h"

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
/// waits for them.
void kill_strays(const std::vector<pid_t>& known);

/// A small process that kills the workers' process groups when the launcher is killed without a
/// chance to act.
///
/// The kernel's death signal reaches the workers alone; the guardian also reaches the processes
/// that they started, unless these left the worker's process group (`setsid`).
class Guardian {
 public:
  /// Starts it. Throws std::system_error.
  Guardian();
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  /// Dismisses it and waits for its end.
  ~Guardian();

  pid_t pid() const { return pid_; }

  /// Puts one process group under its watch. Async-signal-safe: a child calls it before it becomes
  /// its program, so that nothing it starts can come first.
  void watch(pid_t group) const;

 private:
  FileDescriptor control_;
  pid_t pid_ = -1;
};

}  // namespace lockstep::launch
