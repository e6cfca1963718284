#include <gtest/gtest.h>

#include "lockstep/launch/ranks/rank_attempt.h"

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;
using State = RescueState;

TEST(RescueWait, IsNothingForRanksThatHoldNothing) {
  EXPECT_FALSE(waits_for_rescue({}, milliseconds(0)));
  EXPECT_FALSE(waits_for_rescue({State::kNone, State::kNone}, milliseconds(0)));
}

TEST(RescueWait, GivesRanksTimeToNoticeTheFailure) {
  EXPECT_TRUE(waits_for_rescue({State::kNone, State::kPossible}, milliseconds(499)));
  EXPECT_FALSE(waits_for_rescue({State::kNone, State::kPossible}, milliseconds(500)));
}

TEST(RescueWait, LastsAsLongAsOneSavesButNotForever) {
  EXPECT_TRUE(waits_for_rescue({State::kPossible, State::kUnderWay}, milliseconds(59'999)));
  EXPECT_FALSE(waits_for_rescue({State::kPossible, State::kUnderWay}, milliseconds(60'000)));
}

TEST(RescueWait, EndsWithTheFirstThatHasSaved) {
  EXPECT_FALSE(waits_for_rescue({State::kDone, State::kPossible}, milliseconds(1)));
  EXPECT_FALSE(waits_for_rescue({State::kUnderWay, State::kDone}, milliseconds(1)));
}

}  // namespace
}  // namespace lockstep::launch
