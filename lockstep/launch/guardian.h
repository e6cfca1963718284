#pragma once

#include <string>
#include <sys/types.h>

#include "lockstep/core/file_descriptor.h"

namespace lockstep::launch {

/// A small process that kills what the workers are and have started when the launcher is killed
/// without a chance to act.
///
/// The kernel's death signal reaches the workers alone. The guardian kills their process groups,
/// and then every process of this user that has its mark in the environment, whatever group or
/// session that went to. What has another environment (`env -i`) escapes.
class Guardian {
 public:
  /// Starts it. Those that share processes share a mark, as make_mark() draws it. Throws
  /// std::system_error.
  explicit Guardian(std::string mark = make_mark());
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  /// Dismisses it and waits for its end.
  ~Guardian();

  pid_t pid() const { return pid_; }

  /// Puts one process group under its watch. Async-signal-safe: a child calls it before it becomes
  /// its program, so that nothing it starts can come first.
  void watch(pid_t group) const;

  /// The variable by which it finds processes, LOCKSTEP_GUARDIAN, and its value, which no other
  /// launcher has.
  static constexpr const char* kVariable = "LOCKSTEP_GUARDIAN";
  static std::string make_mark();
  const std::string& mark() const { return mark_; }

 private:
  std::string mark_;
  FileDescriptor control_;
  pid_t pid_ = -1;
};

}  // namespace lockstep::launch
