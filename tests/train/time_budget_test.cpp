#include "lockstep/train/time_budget.h"

#include <array>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "lockstep/comm/run_ranks.h"

namespace lockstep {
namespace {

TEST(TimeBudget, WithoutALimitIsNeverSpent) {
  TimeBudget budget({}, ProcessGroup());
  for (int step = 0; step < 10000; ++step) EXPECT_FALSE(budget.spent());
}

TEST(TimeBudget, EndsAllRanksAfterTheSameStep) {
  std::array<int, 3> steps{};
  run_ranks(3, [&steps](ProcessGroup world) {
    TimeBudget budget(0.2, world);
    int& mine = steps[static_cast<std::size_t>(world.rank())];
    do {
      // Ranks of unequal speed, and never in step with each other.
      std::this_thread::sleep_for(std::chrono::microseconds(100 * (world.rank() + 1)));
      ++mine;
    } while (!budget.spent());
  });
  EXPECT_GT(steps[0], 1);
  EXPECT_EQ(steps[0], steps[1]);
  EXPECT_EQ(steps[0], steps[2]);
}

TEST(TimeBudget, ChecksRarelyWhenStepsAreShort) {
  EXPECT_EQ(steps_to_next_check(0.002, 100), 125);
  EXPECT_EQ(steps_to_next_check(0.002, 0.02), 10) << "not past the end";
  EXPECT_EQ(steps_to_next_check(10, 100), 1);
  EXPECT_EQ(steps_to_next_check(0, 100), 1000);
}

}  // namespace
}  // namespace lockstep
