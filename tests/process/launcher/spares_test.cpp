// Processes that wait to become ranks: a restart takes them, and none of them is left.

#include <csignal>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/train/idx_files.h"
#include "tests/process/train/resumable_run.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSubsetOf;

constexpr std::size_t kLinesBeforeDeath = 4;

class TrainSpares : public ::testing::Test {
 protected:
  std::string flags() const {
    return "--model mnist-small --epochs 40 --batch-size 16 --log-interval 5 --no-rescue "
           "--snapshot-interval 10steps --nproc-per-node 2 --no-pin " +
           data_.flag();
  }

  // Of this run: what waits has no rank among the variables that it was started with.
  static std::vector<pid_t> spares_of(const ResumableRun& run) {
    std::vector<pid_t> spares;
    for (const pid_t process : run.processes()) {
      if (!variable_of(process, "LOCKSTEP_SPARE").empty()) spares.push_back(process);
    }
    return spares;
  }

  IdxFiles data_{512, 64};
};

TEST_F(TrainSpares, TakeTheRanksPlacesAfterAFailureAndEndWithTheRun) {
  const ResumableRun quiet(flags()), disturbed(flags());
  quiet.complete();
  Command command = disturbed.start("--spares --max-restarts 2");
  std::vector<pid_t> first;
  ASSERT_TRUE(command.wait_until([&] {
    first = spares_of(disturbed);
    return first.size() == 2 && disturbed.lines() >= kLinesBeforeDeath;
  })) << command.err();
  ASSERT_EQ(::kill(disturbed.rank(1), SIGKILL), 0);
  // Those that waited are the ranks now, and others wait.
  ASSERT_TRUE(command.wait_until([&] { return spares_of(disturbed).size() == 4; }))
      << command.err();
  EXPECT_THAT(first, IsSubsetOf(spares_of(disturbed)));
  EXPECT_THAT(command.wait().with_code(0).err, HasSubstr("restart 1 of 2: training resumed "));
  EXPECT_EQ(disturbed.summary().at("restarts"), 1);
  expect_same(quiet.outcome(), disturbed.outcome());
  EXPECT_TRUE(all_end(disturbed.processes())) << "a spare is left";
}

TEST_F(TrainSpares, EndWithALauncherThatIsKilled) {
  const ResumableRun run(flags());
  Command command = run.start("--spares");
  ASSERT_TRUE(command.wait_until([&] { return spares_of(run).size() == 2; })) << command.err();
  const std::vector<pid_t> all = run.processes();
  command.signal(SIGKILL);
  EXPECT_TRUE(all_end(all));
}

TEST_F(TrainSpares, ThatDieAreDoneWithout) {
  const ResumableRun run(flags());
  Command command = run.start("--spares --max-restarts 2");
  std::vector<pid_t> spares;
  // A rank that dies before the run has begun is no restart of it.
  ASSERT_TRUE(command.wait_until([&] {
    spares = spares_of(run);
    return spares.size() == 2 && run.lines() >= kLinesBeforeDeath;
  })) << command.err();
  ASSERT_EQ(::kill(spares.front(), SIGKILL), 0);
  ASSERT_TRUE(eventually([&] { return !is_running(spares.front()); }));
  ASSERT_EQ(::kill(run.rank(1), SIGKILL), 0);
  command.wait().with_code(0);
  EXPECT_EQ(run.summary().at("restarts"), 1);
}

}  // namespace
}  // namespace lockstep::testing
