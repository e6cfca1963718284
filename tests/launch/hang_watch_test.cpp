#include <gtest/gtest.h>

#include "lockstep/core/error.h"
#include "lockstep/launch/hang/rank_watch.h"
#include "lockstep/launch/launch_options.h"

namespace lockstep::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Ranks = std::vector<std::optional<RankProgress>>;

RankProgress at(std::uint64_t activity, bool has_stepped = true) {
  return {.step = 1, .has_stepped = has_stepped, .activity = activity};
}

class HangWatches : public ::testing::Test {
 protected:
  /// Looks as often as it asks for, for that long.
  void pass(milliseconds time, const Ranks& ranks) {
    for (const auto end = now_ + time; now_ < end;) {
      now_ = std::min(end, std::max(watch_.due(), now_ + milliseconds(1)));
      watch_.look(now_, ranks);
    }
  }

  HangWatch watch_{seconds(8), 2};
  HangWatch::Time now_ = HangWatch::Time{} + seconds(1000);
};

TEST_F(HangWatches, FindARankThatGivesNoSignForTheTimeout) {
  watch_.look(now_, {at(1), at(1)});
  pass(milliseconds(7900), {at(1), at(1)});
  EXPECT_FALSE(watch_.is_late(0));
  EXPECT_EQ(watch_.idle(0), milliseconds(7900));
  pass(milliseconds(100), {at(1), at(2)});
  EXPECT_TRUE(watch_.is_late(0));
  EXPECT_FALSE(watch_.is_late(1)) << "it gave one";
  pass(milliseconds(1), {at(2), at(2)});
  EXPECT_FALSE(watch_.is_late(0));
}

TEST_F(HangWatches, GiveMoreTimeBeforeTheFirstStep) {
  watch_.look(now_, {at(0, false), at(1)});
  pass(seconds(39), {at(0, false), at(1)});
  EXPECT_FALSE(watch_.is_late(0));
  EXPECT_TRUE(watch_.is_late(1));
  pass(seconds(1), {at(0, false), at(1)});
  EXPECT_TRUE(watch_.is_late(0)) << "five times as much";
}

TEST_F(HangWatches, CountOnlyTimeInWhichTheyCouldLook) {
  watch_.look(now_, {at(1), at(1)});
  now_ += seconds(3600);
  watch_.look(now_, {at(1), at(1)});
  EXPECT_LT(watch_.idle(0), seconds(2)) << "the machine was asleep";
}

TEST_F(HangWatches, ForgetARankThatIsNotWatchedOrExcused) {
  watch_.look(now_, {at(1), at(1)});
  pass(seconds(9), {at(1), std::nullopt});
  EXPECT_TRUE(watch_.is_late(0));
  EXPECT_FALSE(watch_.is_late(1));
  watch_.excuse(0);
  EXPECT_FALSE(watch_.is_late(0));
  pass(seconds(7), {at(1), at(1)});
  EXPECT_FALSE(watch_.is_late(0));
}

TEST(HangTimeout, IsATimeSpanOrNever) {
  EXPECT_EQ(hang_timeout_of("0"), milliseconds(0));
  EXPECT_EQ(hang_timeout_of("90s"), seconds(90));
  EXPECT_EQ(hang_timeout_of("2m"), kUsualHangTimeout);
  EXPECT_EQ(hang_timeout_of("0.5"), milliseconds(500));
  for (const char* bad : {"", "-1", "0.01", "soon", "1000000000"})
    EXPECT_THROW(hang_timeout_of(bad), InvalidArgument) << bad;
}

}  // namespace
}  // namespace lockstep::launch
