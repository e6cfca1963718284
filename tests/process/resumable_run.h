#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <sys/types.h>

#include "lockstep/formats/snapshot/snapshot_folder.h"

#include "tests/process/train_command.h"
#include "tests/support/temporary_folder.h"

namespace lockstep::testing {

/// Is what must not depend on whether a run was stopped: weights, metric lines joined over the
/// restarts, the summary without its times. By name.
using Outcome = std::map<std::string, std::string>;

/// Expects the same of both, and names what differs.
void expect_same(const Outcome& expected, const Outcome& found);

/// Is a run that is started again and again by the same command, until it ends.
class ResumableRun {
 public:
  /// Takes the flags of `lockstep train`; the run goes on from its newest snapshot.
  explicit ResumableRun(std::vector<std::string> flags);

  /// Names the run's folder.
  std::string output() const { return folder_.str() + "/run"; }
  std::string file(const std::string& name) const { return output() + "/" + name; }

  /// Starts a life of the run, with these flags after the others.
  TrainCommand start(const std::vector<std::string>& more = {}) const;

  /// Makes a life from its start to its end.
  Ended live(const std::vector<std::string>& more = {}) const { return start(more).wait(); }

  /// Starts a life and sends this signal to a rank, the victim, once metrics.jsonl has so many
  /// lines.
  Ended interrupted(int signal, int victim, std::size_t after_lines) const;

  Outcome outcome() const;
  nlohmann::json summary() const { return nlohmann::json::parse(contents(file("summary.json"))); }

  /// Finds its newest whole snapshot, and those that are not.
  SnapshotChoice newest() const { return SnapshotFolder(output()).newest(); }

  /// Lists what lies in its folder of snapshots, sorted.
  std::vector<std::string> snapshot_names() const;

  /// Gives the lines of metrics.jsonl so far.
  std::size_t lines() const;

  /// Finds processes of this run: that of a rank (-1 if there is none), or all.
  pid_t rank(int number) const;
  std::vector<pid_t> processes() const { return processes_with(output()); }

 private:
  TemporaryFolder folder_;
  std::vector<std::string> flags_;
};

}  // namespace lockstep::testing
