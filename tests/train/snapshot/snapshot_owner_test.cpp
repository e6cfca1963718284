// Who has the folder of a Snapshot.

#include <csignal>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/comm/group_factory.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/snapshot/training_steps.h"
#include <torch/torch.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/snapshot/snapshot.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::SmallNet;
using testing::TemporaryFolder;

struct OwnedTraining {
  SmallNet net;
  torch::optim::SGD optimizer{net->parameters(), torch::optim::SGDOptions(0.01)};
};

// What a save leaves that has not ended.
fs::path begin_a_save(const fs::path& run) {
  const fs::path aside = run / "snapshots" / ".step-00000002.abc123";
  fs::create_directories(aside);
  return aside;
}

TEST(Snapshot, ASecondRunInItsFolderIsRefusedOnAllRanks) {
  const TemporaryFolder run;
  const fs::path aside = begin_a_save(run.path());
  OwnedTraining training;
  {
    Snapshot first(run.path(), ProcessGroup());
    (void)first.load(*training.net, training.optimizer);
    EXPECT_FALSE(fs::exists(aside)) << "it was nobody's";
    begin_a_save(run.path());
    testing::run_ranks(2, [&](const ProcessGroup& world) {
      Snapshot second(run.path(), world);
      const auto load = [&] { (void)second.load(*training.net, training.optimizer); };
      EXPECT_THAT(testing::message_of<InvalidArgument>(load),
          HasSubstr("a run is under way in " + run.path().string()));
    });
    EXPECT_TRUE(fs::exists(aside)) << "the first one is writing it";
  }
  Snapshot third(run.path(), ProcessGroup());
  EXPECT_EQ(third.load(*training.net, training.optimizer).step, 0);
}

TEST(Snapshot, TheDeadGiveItsFolderFree) {
  const TemporaryFolder run;
  OwnedTraining training;
  const pid_t child = ::fork();
  if (child == 0) {
    Snapshot killed(run.path(), ProcessGroup());
    (void)killed.load(*training.net, training.optimizer);
    begin_a_save(run.path());
    ::kill(::getpid(), SIGKILL);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  ASSERT_TRUE(fs::exists(run.path() / ".lock"));
  Snapshot snapshot(run.path(), ProcessGroup());
  EXPECT_EQ(snapshot.load(*training.net, training.optimizer).step, 0);
  EXPECT_TRUE(fs::is_empty(run.path() / "snapshots")) << "nobody goes on with that";
}

// In /sys not even root makes a file.
TEST(Snapshot, AFolderThatMayOnlyBeReadIsRead) {
  OwnedTraining training;
  Snapshot snapshot("/sys/kernel", ProcessGroup());
  EXPECT_EQ(snapshot.load(*training.net, training.optimizer).step, 0);
}

}  // namespace
}  // namespace lockstep
