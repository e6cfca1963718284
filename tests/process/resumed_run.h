#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/process/train_command.h"
#include "tests/train/temporary_folder.h"

namespace lockstep::testing {

/// Waits, with a guard against waiting for ever.
template <typename Condition>
bool eventually(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

/// Trains the same run whole and in several lives, and compares what came of it.
class ResumedRun : public ::testing::Test {
 protected:
  using Words = std::vector<std::string>;

  void SetUp() override;

  std::string run(const std::string& name) const { return folder_.path() + "/" + name; }
  nlohmann::json summary(const std::string& name) const;
  std::int64_t lines(const std::string& name) const;

  /// Gives the flags of a short run with snapshots in the middle of epochs and of log intervals.
  Words words(const std::string& name, const Words& more) const;

  /// Trains to the end, from the newest snapshot if there is one.
  Ended go_on(const std::string& name, Words more) const;

  /// Sends a signal to a rank (of one process: that) once the metrics have so many lines; or to the
  /// command itself. Gives how the command ended.
  Ended interrupt(
      const std::string& name, const Words& more, int signal, int rank, std::int64_t lines) const;
  static constexpr int kCommand = -1;

  void expect_same(const std::string& a, const std::string& b) const;

  TemporaryFolder data_, folder_;
};

}  // namespace lockstep::testing
