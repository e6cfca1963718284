// Kills ranks in mid-step: the run ends, reports which rank died of what, and leaves nothing.

#include <csignal>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>

#include "tests/process/train/resumable_run.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

std::set<std::string> our_shared_memory() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    const bool is_a_folder_of_tests = name.starts_with("lockstep-test-");
    if (name.find("lockstep") != std::string::npos && !is_a_folder_of_tests) names.insert(name);
  }
  return names;
}

class TrainDeath : public ::testing::TestWithParam<int> {
 protected:
  IdxFiles data_{512, 64};
};

TEST_P(TrainDeath, ARankKilledInMidStepEndsTheRun) {
  const auto before = our_shared_memory();
  const ResumableRun run(
      "--nproc-per-node 2 --max-restarts 0 --max-time 5m --log-interval 1 " + data_.flag());
  const Ended ended = run.interrupted(SIGKILL, GetParam(), 1);
  EXPECT_EQ(ended.code(), 137) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("rank " + std::to_string(GetParam())));
  EXPECT_THAT(ended.err, HasSubstr("SIGKILL"));
  EXPECT_TRUE(run.processes().empty()) << "a process was left";
  EXPECT_EQ(our_shared_memory(), before);
}

INSTANTIATE_TEST_SUITE_P(EitherRank, TrainDeath, ::testing::Values(0, 1));

}  // namespace
}  // namespace lockstep::testing
