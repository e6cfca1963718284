#include "lockstep/launch/hang/stall.h"

#include <gmock/gmock.h>

#include "lockstep/liveness/group_record.h"

namespace lockstep::launch {
namespace {

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
