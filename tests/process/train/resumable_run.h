#pragma once

#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <sys/types.h>
#include <vector>

#include "tests/process/command.h"
#include "tests/process/train/idx_files.h"

#include "lockstep/snapshot/snapshot_folder.h"

namespace lockstep::testing {

/// What must not depend on whether a run was stopped: weights, metric lines joined over the
/// restarts, the summary without its times. By name.
using Outcome = std::map<std::string, std::string>;

/// Expects the same of both, and names what differs.
void expect_same(const Outcome& expected, const Outcome& found);

/// A run that is started again and again by the same command, until it ends.
class ResumableRun {
 public:
  /// Takes the flags of `lockstep train`; the run goes on from its newest snapshot.
  explicit ResumableRun(std::string flags) : flags_(std::move(flags)) {}

  /// Returns the run's folder.
  std::string output() const { return folder_.file("run"); }
  std::string file(const std::string& name) const { return output() + "/" + name; }

  /// Starts the command, with these flags after the others.
  Command start(const std::string& more = "") const;

  /// Runs it to its end, well or badly.
  Ended attempt(const std::string& more = "") const { return start(more).wait(); }

  /// Runs it to its end; throws, and so ends the test, unless that is a good one.
  Ended complete(const std::string& more = "") const;

  /// Starts it and sends this signal to a rank, the victim, once metrics.jsonl has that many lines.
  Ended interrupted(int signal, int victim, std::size_t after_lines) const;

  Outcome outcome() const;
  nlohmann::json summary() const { return nlohmann::json::parse(contents(file("summary.json"))); }

  /// Finds its newest whole snapshot, and those that are not.
  SnapshotChoice newest() const { return SnapshotFolder(output()).newest(); }

  /// Returns the names in its folder of snapshots, sorted.
  std::vector<std::string> snapshot_names() const;

  /// Returns the lines of metrics.jsonl so far.
  std::size_t lines() const;

  /// Returns processes of this run: that of a rank (-1 if there is none), or all.
  pid_t rank(int number) const;
  std::vector<pid_t> processes() const { return processes_with(output()); }

 private:
  TemporaryFolder folder_;
  std::string flags_;
};

/// Gives tests a small data set, and flags to train on it: to the bits of an undisturbed run, which
/// a rescue has but for a loss.
class ShortRuns : public ::testing::Test {
 protected:
  /// Returns the flags of a run that saves in the middle of epochs and of log intervals.
  std::string flags(const std::string& more = "") const {
    return data_.flag() +
           " --batch-size 8 --epochs 4 --log-interval 4 --snapshot-interval 3steps --no-rescue " +
           more;
  }

  IdxFiles data_{204, 40};  // the last batch of an epoch has fewer samples than the others
};

}  // namespace lockstep::testing
