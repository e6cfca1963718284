// Kills ranks in mid-step: the run ends, says who died of what, and leaves nothing.

#include <csignal>
#include <filesystem>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/train_command.h"
#include "tests/process/train_idx_files.h"
#include "tests/support/temporary_folder.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

std::set<std::string> our_shared_memory() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    if (name.find("lockstep") != std::string::npos) names.insert(name);
  }
  return names;
}

class TrainDeath : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { write_idx_files(folder_.str(), 512, 64); }

  std::string output() const { return folder_.str() + "/run"; }

  pid_t rank(int number) const {
    for (const pid_t process : processes_with("lockstep-train")) {
      const bool ours = contents("/proc/" + std::to_string(process) + "/cmdline").find(output()) !=
                        std::string::npos;
      if (ours && variable_of(process, "RANK") == std::to_string(number)) return process;
    }
    return -1;
  }

  TemporaryFolder folder_;
};

TEST_P(TrainDeath, ARankKilledInMidStepEndsTheRun) {
  const auto before = our_shared_memory();
  TrainCommand command(
      folder_.str(),
      {"--nproc-per-node", "2", "--max-restarts", "0", "--data", "mnist:" + folder_.str(),
       "--output", output(), "--max-time", "5m", "--log-interval", "1"});
  ASSERT_TRUE(eventually([this] { return !contents(output() + "/metrics.jsonl").empty(); }))
      << contents(command.err_path());
  const pid_t victim = rank(GetParam());
  ASSERT_GT(victim, 0);
  ASSERT_EQ(::kill(victim, SIGKILL), 0);
  const auto ended = command.wait();
  EXPECT_EQ(ended.code, 137) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("rank " + std::to_string(GetParam())));
  EXPECT_THAT(ended.err, HasSubstr("SIGKILL"));
  EXPECT_TRUE(processes_with(output()).empty()) << "a process was left";
  EXPECT_EQ(our_shared_memory(), before);
}

INSTANTIATE_TEST_SUITE_P(EitherRank, TrainDeath, ::testing::Values(0, 1));

}  // namespace
}  // namespace lockstep::testing
