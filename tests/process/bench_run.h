#pragma once

#include <functional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "tests/process/train_command.h"

namespace lockstep::testing {

/// Runs `lockstep ARGUMENTS` as a person would, for as long as a bench takes; what it says goes to
/// files in the folder. It is killed when a test gives up on it.
class BenchRun {
 public:
  BenchRun(const std::string& folder, const std::vector<std::string>& arguments);
  BenchRun(const BenchRun&) = delete;
  BenchRun& operator=(const BenchRun&) = delete;
  ~BenchRun();

  pid_t pid() const { return pid_; }

  /// Waits until something is so; a test failure if that takes too long, or the run ends before.
  void wait_until(const std::function<bool()>& holds);

  /// Waits for the end.
  Ended wait();

 private:
  bool has_ended();

  std::string folder_;
  pid_t pid_ = -1;
  int code_ = -1;
};

}  // namespace lockstep::testing
