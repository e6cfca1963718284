#include "lockstep/plan/step_clock.h"

#include <array>
#include <gtest/gtest.h>

#include "lockstep/core/error.h"

namespace lockstep::plan {
namespace {

TEST(StepClock, LanesWorkAtOnceAndTasksWaitForWhatTheyNeed) {
  StepClock clock;
  const auto place = clock.add_lane("place"), link = clock.add_lane("link");
  const std::array first{clock.add(place, Use::kBackward, "a", 2)};
  const std::array sent{clock.add(link, Use::kCommunication, "a", 5, first)};
  clock.add(place, Use::kBackward, "b", 3);
  const auto last = clock.add(place, Use::kOptimizer, "step", 1, sent);
  EXPECT_DOUBLE_EQ(clock.end_of(sent[0]), 7);
  EXPECT_DOUBLE_EQ(clock.end_of(last), 8);
  EXPECT_DOUBLE_EQ(clock.length(), 8);
  EXPECT_DOUBLE_EQ(clock.uses_of(place)[static_cast<std::size_t>(Use::kBackward)], 5);
}

TEST(StepClock, RefusesWhatIsNotThere) {
  StepClock clock;
  EXPECT_THROW(clock.add(0, Use::kRest, "nowhere", 1), InvalidArgument);
  const auto lane = clock.add_lane("place");
  const std::array<StepClock::Task, 1> none{7};
  EXPECT_THROW(clock.add(lane, Use::kRest, "early", 1, none), InvalidArgument);
  EXPECT_THROW(clock.add(lane, Use::kRest, "backwards", -1), InvalidArgument);
  EXPECT_EQ(clock.length(), 0);
}

}  // namespace
}  // namespace lockstep::plan
