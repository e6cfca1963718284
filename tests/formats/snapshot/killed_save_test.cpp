#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/formats/snapshot/run_under_fault.h"
#include "tests/formats/snapshot/system_calls.h"

namespace lockstep {
namespace {

/// Saves in a child process that is killed at its call number `at`, counted from 0, or torn at its
/// write of that number. Returns false if it made fewer.
bool killed_at(const testing::RunUnderFault& run, int at, testing::Fate how) {
  const pid_t child = ::fork();
  if (child == 0) {
    int calls = 0;
    const testing::WatchedCalls watched(run.path(), [&](const testing::SystemCall& call) {
      const bool counts = how != testing::kTorn || call.name == "write";
      if (counts && calls++ == at) return how;
      // Other processes see what the kernel has in memory: no need to wait for the disk.
      return call.name == "fsync" ? testing::kPretended : testing::kDone;
    });
    try {
      run.save();
    } catch (const std::exception&) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  if (WIFSIGNALED(status)) {
    EXPECT_EQ(WTERMSIG(status), SIGKILL);
    return true;
  }
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the save failed, though nothing was done to it";
  return false;
}

class KilledSave : public ::testing::TestWithParam<testing::Scene> {};

TEST_P(KilledSave, LeavesTheOldOrTheNewSnapshotWhereverItIsKilled) {
  for (const testing::Fate how : {testing::kKilled, testing::kTorn}) {
    int old = 0, fresh = 0;
    for (int at = 0;; ++at) {
      SCOPED_TRACE("killed at call " + std::to_string(at));
      const testing::RunUnderFault run(GetParam());
      if (!killed_at(run, at, how)) break;
      ++(run.newest_seed() == testing::kOldSeed ? old : fresh);
      run.expect_that_life_goes_on();
      if (HasFailure()) return;
    }
    EXPECT_GT(old, how == testing::kTorn ? 5 : 40);
    EXPECT_GT(fresh, how == testing::kTorn ? 0 : 8);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Scenes, KilledSave, ::testing::ValuesIn(testing::kScenes), testing::name_of_scene);

}  // namespace
}  // namespace lockstep
