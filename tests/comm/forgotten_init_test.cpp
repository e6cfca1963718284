// A program under a launcher that makes a group of one, most likely by oversight, is warned.

#include <cstdlib>
#include <gtest/gtest.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/comm/rendezvous.h"

namespace lockstep {
namespace {

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
