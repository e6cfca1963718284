#include "lockstep/train/snapshot/background_thread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <system_error>

#include "tests/support/no_threads.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/snapshot/snapshot_parts.h"

#include "lockstep/comm/process_group.h"
#include "lockstep/train/snapshot/snapshot_saver.h"

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
