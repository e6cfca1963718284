#include "lockstep/launch/hang/rank_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/core/error.h"
#include "lockstep/launch/hang/stall.h"
#include "lockstep/launch/launch_options.h"
#include "lockstep/liveness/own_slot.h"

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

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Op = Operation;
using Sights = std::vector<RankSight>;

RankSight sight(int rank, bool is_late = true) {
  return {.rank = rank, .is_watched = true, .is_late = is_late, .progress = {.step = 1}};
}

/// Returns a rank that has begun so many collectives of the world, the last one an all_reduce.
RankSight at_work(int rank, std::uint64_t begun, bool is_late = true) {
  RankSight result = sight(rank, is_late);
  result.progress.groups = {
      {.id = kWorldGroup, .rank = rank, .size = 2, .begun = begun, .last = {Op::kAllReduce, 4}}};
  return result;
}

RankSight waiting(int rank, std::uint64_t begun, bool is_late = true) {
  RankSight result = at_work(rank, begun, is_late);
  result.progress.groups[0].wait = GroupProgress::Wait{{Op::kAllReduce, 4}, begun};
  return result;
}

RankSight stopped(RankSight sight) {
  sight.is_stopped = true;
  return sight;
}

TEST(Stall, IsAHangWhenARankIsLateThatWaitsForNobody) {
  EXPECT_EQ(stall_of({waiting(0, 42), at_work(1, 41)}), Stall::kHangs);
  EXPECT_THAT(ranks_behind({waiting(0, 42), at_work(1, 41)}), ElementsAre(1));
  EXPECT_EQ(stall_of({sight(0), sight(1, false)}), Stall::kHangs)
      << "of a program without groups, too, whatever the others do";
}

TEST(Stall, IsNoneWhileTheOthersAreAtWork) {
  EXPECT_EQ(stall_of({waiting(0, 42), at_work(1, 41, false)}), Stall::kNone)
      << "rank 0 waits for one that evaluates";
  EXPECT_EQ(stall_of({waiting(0, 42), waiting(1, 41, false)}), Stall::kNone);
  EXPECT_EQ(stall_of({}), Stall::kNone);
  EXPECT_EQ(stall_of({RankSight{.is_late = true}}), Stall::kNone) << "it is not watched";
}

TEST(Stall, IsOnlyAWaitWhenAllWaitForOthers) {
  EXPECT_EQ(stall_of({waiting(0, 42), waiting(1, 42)}), Stall::kWaits);
  EXPECT_EQ(stall_of({waiting(0, 42), RankSight{}}), Stall::kWaits) << "one has ended";
  EXPECT_THAT(ranks_behind({waiting(0, 42), waiting(1, 41)}), ElementsAre(1));
  EXPECT_THAT(ranks_behind({waiting(0, 42), waiting(1, 42)}), ElementsAre(0, 1))
      << "the network, or the group itself";
}

TEST(Stall, RanksInOneCollectiveAreInStep) {
  EXPECT_TRUE(are_in_step({waiting(0, 42), waiting(1, 42)}));
  EXPECT_FALSE(are_in_step({waiting(0, 42), waiting(1, 41)}));
  EXPECT_FALSE(are_in_step({waiting(0, 42), at_work(1, 42)}));
  EXPECT_FALSE(are_in_step({waiting(0, 42), RankSight{}})) << "one has ended";
  RankSight receives = waiting(1, 42);
  receives.progress.groups[0].wait->number = 0;
  EXPECT_FALSE(are_in_step({waiting(0, 42), receives})) << "nobody may ever send it";
}

TEST(Stall, AStoppedRankIsAtFaultEvenInACall) {
  const Sights ranks{waiting(0, 42), stopped(waiting(1, 42))};
  EXPECT_EQ(stall_of(ranks), Stall::kHangs);
  EXPECT_THAT(ranks_behind(ranks), ElementsAre(1));
}

TEST(Stall, OneThatPollsIsAheadAndWaits) {
  EXPECT_EQ(stall_of({at_work(0, 42), at_work(1, 41, false)}), Stall::kNone);
  EXPECT_EQ(stall_of({at_work(0, 42), at_work(1, 41)}), Stall::kHangs);
  EXPECT_THAT(ranks_behind({at_work(0, 42), at_work(1, 41)}), ElementsAre(1));
}

TEST(Stall, NumbersOfGroupsThatShareASlotAreNotCompared) {
  Sights ranks{waiting(0, 42), waiting(1, 41)};
  for (RankSight& rank : ranks) rank.progress.groups[0].id = kOtherGroups;
  EXPECT_THAT(ranks_behind(ranks), ElementsAre(0, 1));
}

TEST(Stall, IsDescribed) {
  EXPECT_EQ(activity_text(at_work(1, 41)),
      "is in no call of a group; its last one was all_reduce 41 (4 bytes)");
  EXPECT_EQ(activity_text(sight(1)), "is in no call of a group");
  EXPECT_EQ(activity_text(waiting(0, 42)), "waits in all_reduce 42 (4 bytes)");
  EXPECT_EQ(activity_text(stopped(at_work(1, 41))), "is stopped by a signal");
  EXPECT_EQ(
      activity_text(stopped(waiting(1, 42))), "is stopped by a signal, in all_reduce 42 (4 bytes)");
  RankSight in_part = waiting(3, 7);
  in_part.progress.groups[0].id = 1000;
  in_part.progress.groups[0].wait->call.bytes = 3 << 19;
  EXPECT_EQ(activity_text(in_part), "waits in all_reduce 7 (1.5 MiB) of a group of 2");
}

TEST(Stall, OthersInOneCallStandTogether) {
  const Sights ranks{waiting(0, 42), at_work(1, 41), waiting(2, 42), waiting(3, 42)};
  EXPECT_EQ(waiting_text(ranks, {1}), "ranks 0, 2 and 3 wait in all_reduce 42 (4 bytes)");
  EXPECT_EQ(waiting_text({waiting(0, 42), at_work(1, 41)}, {1}),
      "rank 0 waits in all_reduce 42 (4 bytes)");
  EXPECT_EQ(waiting_text({at_work(0, 1)}, {}), "");
  Sights many;
  for (int rank = 0; rank < 100; ++rank) many.push_back(waiting(rank, 5));
  EXPECT_EQ(waiting_text(many, {}),
      "ranks 0, 1, 2, 3, 4, 5, 6, 7 and more wait in all_reduce 5 (4 bytes)");
}

TEST(Stall, ANodeCountsItsLastRank) {
  EXPECT_THAT(least_begun({waiting(0, 42), waiting(1, 40), RankSight{}}),
      ElementsAre(::testing::Pair(kWorldGroup, 40U)));
  EXPECT_THAT(least_begun({sight(0)}), IsEmpty());
}

}  // namespace
}  // namespace lockstep::launch
