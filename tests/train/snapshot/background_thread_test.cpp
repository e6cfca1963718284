#include "lockstep/snapshot/background_thread.h"

#include <csignal>
#include <exception>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <system_error>

#include "tests/support/failing_call.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/file_size_limit.h"
#include "tests/train/snapshot/snapshot_parts.h"

#include "lockstep/comm/process_group.h"
#include "lockstep/formats/open_directory.h"
#include "lockstep/formats/output_file.h"
#include "lockstep/snapshot/snapshot_saver.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::NoThreads;

TEST(BackgroundThread, HasNoJobWhereNoThreadCanBegin) {
  BackgroundThread thread;
  {
    const NoThreads none;
    EXPECT_THROW(thread.start([] {}), std::system_error);
  }
  EXPECT_FALSE(thread.is_busy());
  thread.wait();
  bool done = false;
  thread.start([&] { done = true; });
  thread.wait();
  EXPECT_TRUE(done);
}

// Also in a program that leaves the signal as it is.
TEST(BackgroundThread, SurvivesAFileThatBecomesTooLarge) {
  const testing::TemporaryFolder folder;
  const testing::FileSizeLimit limit(100);
  const auto ignored = std::signal(SIGXFSZ, SIG_DFL);
  BackgroundThread thread;
  thread.start([&] {
    const OpenDirectory opened = OpenDirectory::open(folder.path());
    OutputFile file(opened, "large");
    file.write(std::string(1000, 'x'));
    file.close();
  });
  thread.wait();
  std::signal(SIGXFSZ, ignored);
  const auto failure = thread.take_failure();
  ASSERT_TRUE(failure);
  EXPECT_THROW(std::rethrow_exception(failure), std::system_error);
}

TEST(BackgroundThread, ASnapshotThatCannotBeginIsAWarningOnAllRanks) {
  const testing::TemporaryFolder run;
  run_ranks(2, [&](const ProcessGroup& world) {
    SnapshotSaver saver({.run = run.path()}, world);
    world.barrier().wait();
    std::optional<NoThreads> none;
    if (world.rank() == 0) none.emplace();
    world.barrier().wait();
    saver.save(1, testing::part_of(world, 1));
    saver.finish();
    world.barrier().wait();
    none.reset();
    const auto warnings = saver.take_warnings();
    ASSERT_EQ(warnings.size(), 1U);
    EXPECT_THAT(warnings[0], HasSubstr("step 1 could not be written: rank 0: "));
    world.barrier().wait();
    saver.save(2, testing::part_of(world, 2));
    saver.finish();
    EXPECT_EQ(saver.last_saved(), 2);
  });
}

}  // namespace
}  // namespace lockstep
