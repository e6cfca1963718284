#include "lockstep/train/graceful_stop.h"

#include <array>
#include <chrono>
#include <csignal>
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/exit_code.h"
#include "lockstep/core/stopwatch.h"

namespace lockstep {
namespace {

TEST(Agreement, OneRankLooksAtEveryStep) {
  Agreement agreement{ProcessGroup()};
  const StepReport report{.seconds = 1, .signal = 15, .snapshot = {.stall_seconds = 0.5}};
  for (int step = 0; step < 1000; ++step) {
    ASSERT_TRUE(agreement.is_due());
    ASSERT_EQ(agreement.maximum(report, 2.0), report);
  }
}

TEST(Agreement, AllRanksHearOfItAfterTheSameStep) {
  std::array<int, 3> steps{};
  run_ranks(3, [&steps](const ProcessGroup& world) {
    Agreement agreement(world);
    const Stopwatch watch;
    int& mine = steps[static_cast<std::size_t>(world.rank())];
    for (bool stopped = false; !stopped;) {
      // Ranks of unequal speed, and never in step with each other.
      std::this_thread::sleep_for(std::chrono::microseconds(100 * (world.rank() + 1)));
      ++mine;
      if (!agreement.is_due()) continue;
      // Only rank 1 has reason to stop.
      const double signal = world.rank() == 1 && watch.seconds() > 0.3 ? 15 : 0;
      const StepReport own{.seconds = watch.seconds(), .signal = signal};
      stopped = agreement.maximum(own, {}).signal == 15;
    }
  });
  EXPECT_GT(steps[0], 2);
  EXPECT_EQ(steps[0], steps[1]);
  EXPECT_EQ(steps[0], steps[2]);
}

TEST(Agreement, NumbersAreEachTheLargest) {
  run_ranks(2, [](const ProcessGroup& world) {
    Agreement agreement(world);
    const double rank = world.rank();
    const StepReport own{.seconds = rank, .signal = 1 - rank, .snapshot = {-rank, 7, 0, rank}};
    const StepReport largest{.seconds = 1, .signal = 1, .snapshot = {0, 7, 0, 1}};
    EXPECT_EQ(agreement.maximum(own, {}), largest);
  });
}

// At the end of an epoch, say: the steps that were made count, not those that were planned.
TEST(Agreement, AnEarlyOneKnowsHowLongAStepTakes) {
  run_ranks(2, [](const ProcessGroup& world) {
    Agreement agreement(world);
    ASSERT_TRUE(agreement.is_due());
    agreement.maximum({.seconds = 0}, {});
    ASSERT_FALSE(agreement.is_due()) << "a thousand steps, as the first took no time";
    agreement.maximum({.seconds = 0.01}, {});
    int steps = 1;
    while (!agreement.is_due()) ++steps;
    EXPECT_EQ(steps, 25);
  });
}

TEST(Agreement, ChecksRarelyWhenStepsAreShort) {
  EXPECT_EQ(steps_to_next_check(0.002, 100), 125);
  EXPECT_EQ(steps_to_next_check(0.002, 0.02), 10) << "not past the end";
  EXPECT_EQ(steps_to_next_check(10, 100), 1);
  EXPECT_EQ(steps_to_next_check(0, 100), 1000);
}

// In a process of its own, as a signal that came stays: here to one rank of two, which are threads.
TEST(GracefulStopDeathTest, OneSignalStopsAllRanksAfterTheSameStep) {
  const auto stopped = [] {
    std::array<int, 2> steps{};
    run_ranks(2, [&steps](const ProcessGroup& world) {
      GracefulStop stop(world);
      int& mine = steps[static_cast<std::size_t>(world.rank())];
      for (; !stop.requested(); ++mine) {
        if (mine == 10 && world.rank() == 1) ::raise(SIGTERM);
        std::this_thread::sleep_for(std::chrono::microseconds(200 * (world.rank() + 1)));
      }
      EXPECT_TRUE(stop.requested()) << "it stays so";
    });
    ::_exit(steps[0] == steps[1] && steps[0] >= 10 ? static_cast<int>(ExitCode::kStopped) : 1);
  };
  EXPECT_EXIT(stopped(), ::testing::ExitedWithCode(75), "^$");
}

}  // namespace
}  // namespace lockstep
