// Who has a run's folder, with locks of the file system and without them.

#include "lockstep/snapshot/run_lock.h"

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/snapshot/system_calls.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::contents;
using ::testing::HasSubstr;
using testing::SystemCall;

class RunLockTest : public ::testing::Test {
 protected:
  std::string run() const { return folder_.file("run"); }
  std::string file() const { return folder_.file("run/.lock"); }
  nlohmann::json record() const { return nlohmann::json::parse(contents(file())); }

  std::string refusal() const {
    return testing::message_of<InvalidArgument>([&] { const RunLock lock(run()); });
  }

  // Leaves the folder as an owner does that is killed.
  void kill_an_owner() const {
    const pid_t child = ::fork();
    if (child == 0) {
      const RunLock lock(run());
      ::kill(::getpid(), SIGKILL);
    }
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    ASSERT_EQ(record()["pid"], child);
  }

  void change(const std::string& key, const nlohmann::json& value) const {
    nlohmann::json changed = record();
    changed[key] = value;
    std::ofstream(file()) << changed.dump();
  }

  testing::TemporaryFolder folder_;
};

TEST_F(RunLockTest, HoldsTheFolderAndNamesItsOwner) {
  {
    const RunLock lock(run());
    EXPECT_EQ(record()["pid"], ::getpid());
    EXPECT_THAT(refusal(),
        AllOf(HasSubstr("a run is under way in " + run()),
            HasSubstr("process " + std::to_string(::getpid()) + " on "),
            HasSubstr(record()["started"].get<std::string>()), HasSubstr("name another folder")));
  }
  EXPECT_FALSE(fs::exists(run())) << "it made the folder, and nothing is in it";
}

TEST_F(RunLockTest, LeavesWhatIsInTheFolder) {
  fs::create_directories(run());
  { const RunLock lock(run()); }
  EXPECT_TRUE(fs::is_empty(run())) << "it did not make it";
  {
    const RunLock lock(run() + "/inner");
    std::ofstream(run() + "/inner/file") << "x";
  }
  EXPECT_TRUE(fs::exists(run() + "/inner/file"));
}

TEST_F(RunLockTest, IsTakenOverFromTheDead) {
  kill_an_owner();
  EXPECT_NO_THROW(check_has_no_owner(run()));
  const RunLock lock(run());
  EXPECT_EQ(record()["pid"], ::getpid());
}

TEST_F(RunLockTest, RemovesNoFileOfAnother) {
  {
    const RunLock lock(run());
    fs::remove(file());
    std::ofstream(file()) << "another's";
  }
  EXPECT_EQ(contents(file()), "another's");
}

TEST_F(RunLockTest, ALinkInItsPlaceIsNotFollowed) {
  fs::create_directories(run());
  std::ofstream(folder_.file("precious")) << "precious";
  fs::create_symlink(folder_.file("precious"), file());
  EXPECT_THROW(RunLock{run()}, std::system_error);
  EXPECT_EQ(contents(folder_.file("precious")), "precious");
}

TEST_F(RunLockTest, OtherProcessesSeeALivingOwner) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const RunLock lock(run());
    [[maybe_unused]] const ssize_t written = ::write(ready[1], "x", 1);
    ::pause();
  }
  char letter = 0;
  ASSERT_EQ(::read(ready[0], &letter, 1), 1);
  EXPECT_THAT(testing::message_of<InvalidArgument>([&] { check_has_no_owner(run()); }),
      HasSubstr("process " + std::to_string(child)));
  change("birth", "1");
  EXPECT_NO_THROW(check_has_no_owner(run())) << "a later process has its number";
  EXPECT_THAT(refusal(), HasSubstr("a run is under way")) << "but the lock is what counts";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

// As on file systems of which the server knows no locks.
class WithoutLocks : public RunLockTest {
 protected:
  testing::WatchedCalls watched_{folder_.path(),
      [](const SystemCall& call) { return call.name == "flock" ? ENOLCK : int{testing::kDone}; }};
};

TEST_F(WithoutLocks, TheOwnersNameCounts) {
  {
    const RunLock lock(run());
    EXPECT_THAT(refusal(), HasSubstr("a run is under way"));
  }
  EXPECT_NO_THROW(RunLock{run()}) << "it has ended well";
}

TEST_F(WithoutLocks, TheDeadOfThisHostAreSucceeded) {
  kill_an_owner();
  EXPECT_NO_THROW(RunLock{run()});
}

TEST_F(WithoutLocks, OfAnotherHostNobodyKnows) {
  kill_an_owner();
  change("computer", "another");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("No locks available"), HasSubstr("remove " + file())));
  fs::remove(file());
  EXPECT_NO_THROW(RunLock{run()});
}

}  // namespace
}  // namespace lockstep
