// What a launcher reads of the calls of each group, and a group of one that was made by oversight.

#include "lockstep/comm/backend.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <memory>
#include <stdlib.h>
#include <vector>

#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/comm/rendezvous.h"
#include "lockstep/liveness/progress_page.h"

namespace lockstep {
namespace {

using Op = Operation;

/// A launcher's page for this process. Once attached a process stays so: each test looks at what
/// has changed.
class RecordedBackends : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    page = new SharedProgress(1);
    setenv("LOCKSTEP_PROGRESS", page->path().c_str(), 1);
    setenv("LOCAL_RANK", "0", 1);
  }
  static void TearDownTestSuite() {
    unsetenv("LOCKSTEP_PROGRESS");
    unsetenv("LOCAL_RANK");
    delete page;
  }

  static std::vector<GroupProgress> groups() { return page->progress(0).groups; }

  static SharedProgress* page;
};

SharedProgress* RecordedBackends::page = nullptr;

TEST_F(RecordedBackends, CountTheCollectivesOfEachRankAndGroup) {
  run_ranks(2, [](const ProcessGroup& world) {
    const torch::Tensor sum = torch::ones({6});
    world.all_reduce(sum).wait();
    const ProcessGroup part = world.split(world.rank(), 0);
    world.broadcast(sum, 0).wait();
    world.barrier().wait();
    // all_reduce, the two calls of split, broadcast, barrier
    const auto all = groups();
    for (const GroupProgress& group : all)
      if (group.id == kWorldGroup && group.rank == world.rank()) EXPECT_EQ(group.begun, 5U);
    EXPECT_GE(all.size(), 2U);
    world.barrier().wait();
  });
  EXPECT_TRUE(groups().empty()) << "groups that have gone take no place";
}

TEST_F(RecordedBackends, SayForWhatARankWaits) {
  run_ranks(2, [](const ProcessGroup& world) {
    const torch::Tensor sum = torch::ones({6});
    if (world.rank() == 0) return world.all_reduce(sum).wait();
    const GroupProgress* waiting = nullptr;
    RankProgress progress;
    while (waiting == nullptr) {  // until rank 0 is there
      progress = page->progress(0);
      waiting = progress.waiting();
    }
    EXPECT_EQ(waiting->rank, 0);
    EXPECT_EQ(waiting->wait, (GroupProgress::Wait{{Op::kAllReduce, 24}, 1}));
    world.all_reduce(sum).wait();
  });
}

class Ended : public Work::State {
 public:
  bool poll() override { return true; }
  void wait() override {}
};

TEST(RecordedWork, ItsEndIsASignOfLifeOnce) {
  GroupSlot slot;
  const auto work = [&] { return Work(std::make_shared<Ended>()).with({&slot, 1, 1}); };
  Work polled = work();
  EXPECT_TRUE(polled.done());
  EXPECT_EQ(slot.events, 1U);
  EXPECT_TRUE(polled.done());
  polled.wait();
  EXPECT_EQ(slot.events, 1U) << "who asks again makes no progress";
  Work waited = work();
  waited.wait();
  EXPECT_EQ(slot.events, 2U);
  waited.wait();
  EXPECT_EQ(slot.events, 2U);
  EXPECT_EQ(slot.waits, 0U);
}

// Each in a process of its own, for the warning comes once.
void expect_on_stderr(const char* world_size, void (*body)(), const std::string& pattern) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        world_size != nullptr ? ::setenv("WORLD_SIZE", world_size, 1) : ::unsetenv("WORLD_SIZE");
        body();
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), pattern);
}

constexpr const char* kNothing = "^$";

TEST(ForgottenInit, IsWarnedOfOnceWithTheRemedy) {
  expect_on_stderr(
      "2",
      [] {
        for (int time = 0; time < 3; ++time) (void)ProcessGroup().size();
      },
      "^lockstep: WORLD_SIZE is 2, [^\n]*init_process_group[^\n]*\n$");
}

TEST(ForgottenInit, IsWarnedOfAmongRanksThatMpirunHasStarted) {
  expect_on_stderr(
      nullptr,
      [] {
        ::setenv("OMPI_COMM_WORLD_RANK", "1", 1);
        ::setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
        ::setenv("OMPI_COMM_WORLD_LOCAL_RANK", "1", 1);
        ::setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
        (void)ProcessGroup().size();
      },
      "^lockstep: Open MPI has started 2 ranks, [^\n]*init_process_group[^\n]*\n$");
}

TEST(ForgottenInit, NobodyIsWarnedWhoIsAlone) {
  for (const char* size : {static_cast<const char*>(nullptr), "", "1", "two"})
    expect_on_stderr(
        size, [] { (void)ProcessGroup().size(); }, kNothing);
}

TEST(ForgottenInit, AGroupThatIsNotUsedYetIsNotWarnedOf) {
  expect_on_stderr(
      "2", [] { const ProcessGroup world; }, kNothing);
}

TEST(ForgottenInit, NobodyIsWarnedWhoCalledInitOrAskedForOneRank) {
  const auto joins = [] {
    (void)init_process_group({.rank = 0, .world_size = 1}).size();
    (void)ProcessGroup().size();
  };
  expect_on_stderr("2", joins, kNothing);
  expect_on_stderr(
      "2", [] { run_ranks(1, [](const ProcessGroup& group) { (void)group.size(); }); }, kNothing);
}

}  // namespace
}  // namespace lockstep
