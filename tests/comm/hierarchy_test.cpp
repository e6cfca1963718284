// The parts of the hierarchical backend that need no other rank: who shares a host, what is cut
// into chunks, and the threads that carry calls and messages on.

#include <algorithm>
#include <atomic>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"

#include "lockstep/comm/hierarchy/chunks.h"
#include "lockstep/comm/hierarchy/courier.h"
#include "lockstep/comm/hierarchy/nodes.h"
#include "lockstep/comm/hierarchy/turn_thread.h"
#include "lockstep/core/error.h"

namespace lockstep::hierarchy {
namespace {

using ::testing::ElementsAre;
using testing::message_of;

TEST(Nodes, AreNumberedByTheirFirstRanks) {
  const Nodes nodes({"b", "a", "a", "b", "a"});
  EXPECT_EQ(nodes.count(), 2);
  EXPECT_EQ(nodes.size(), 5);
  EXPECT_THAT(nodes.ranks_of(0), ElementsAre(0, 3));
  EXPECT_THAT(nodes.ranks_of(1), ElementsAre(1, 2, 4));
  EXPECT_EQ(nodes.node_of(3), 0);
  EXPECT_EQ(nodes.index_of(3), 1);
  EXPECT_EQ(nodes.index_of(4), 2);
  EXPECT_EQ(nodes.fewest(), 2);
}

TEST(Nodes, HaveRanksAcrossThem) {
  const Nodes nodes({"b", "a", "a", "b", "a"});
  EXPECT_THAT(nodes.ranks_across(0), ElementsAre(0, 1));
  EXPECT_THAT(nodes.ranks_across(1), ElementsAre(3, 2));
  EXPECT_THAT(nodes.ranks_across(2), ElementsAre(4));
}

TEST(Nodes, AreLevelsOnlyWithSeveralRanksSomewhere) {
  EXPECT_TRUE(Nodes({"a", "b", "b"}).are_levels());
  EXPECT_FALSE(Nodes({"a", "b", "c"}).are_levels());
  EXPECT_FALSE(Nodes({"a", "a"}).are_levels());
}

TEST(Nodes, OfASubgroupKeepItsOrder) {
  const Nodes nodes = Nodes({"a", "a", "b", "b"}).among({3, 0, 2});
  EXPECT_EQ(nodes.count(), 2);
  EXPECT_THAT(nodes.ranks_of(0), ElementsAre(0, 2));
  EXPECT_THAT(nodes.ranks_of(1), ElementsAre(1));
}

// Each element exactly once, in order.
void expect_cover(const std::vector<Part>& parts, std::int64_t begin, std::int64_t end) {
  for (const Part& part : parts) {
    EXPECT_EQ(part.begin, begin);
    EXPECT_GE(part.count, 0);
    begin += part.count;
  }
  EXPECT_EQ(begin, end);
}

TEST(Chunks, CoverEveryMessageInAlignedSteps) {
  for (const std::size_t width : {1U, 2U, 4U, 8U}) {
    for (const int lanes : {1, 2, 3, 8}) {
      for (const std::int64_t elements : {0, 1, 63, 65, 4097, 1'000'003, 100'000'000}) {
        const auto chunks = cut_into_chunks(elements, width, lanes);
        expect_cover(chunks, 0, elements);
        for (const Part& chunk : chunks) {
          EXPECT_GT(chunk.count, 0);
          EXPECT_EQ(chunk.begin % (64 * lanes), 0);
          std::vector<Part> parts;
          for (int lane = 0; lane < lanes; ++lane)
            parts.push_back(part_of_lane(chunk, lane, lanes));
          expect_cover(parts, chunk.begin, chunk.begin + chunk.count);
        }
      }
    }
  }
}

TEST(Chunks, AreAFewOfAMiddlingMessageAndNotLargerThanAMegabyteALane) {
  EXPECT_EQ(cut_into_chunks(1000, 4, 2).size(), 1U);
  EXPECT_EQ(cut_into_chunks(1 << 20, 4, 1).size(), 8U);
  EXPECT_EQ(cut_into_chunks(1 << 24, 4, 2).front().count, 1 << 19);
}

TEST(Chunks, OfAShortMessageTakeOneLane) {
  EXPECT_EQ(lanes_for(0, 4), 1);
  EXPECT_EQ(lanes_for(4096, 4), 1);
  EXPECT_EQ(lanes_for(1 << 20, 4), 4);
  EXPECT_EQ(lanes_for(1 << 20, 1), 1);
}

TEST(TurnThread, CarriesOutCallsInTheirOrder) {
  std::vector<int> seen;
  TurnThread turns([](const std::string&) {});
  std::vector<Work> works;
  for (int i = 0; i < 100; ++i) works.push_back(turns.add([&seen, i] { seen.push_back(i); }));
  works.back().wait();
  EXPECT_TRUE(works.front().done());
  EXPECT_TRUE(turns.is_idle());
  ASSERT_EQ(seen.size(), 100U);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
}

TEST(TurnThread, TellsOfAFailureAndGoesOn) {
  std::string heard;
  TurnThread turns([&](const std::string& reason) { heard = reason; });
  Work bad = turns.add([] { throw InvalidArgument("another size"); });
  Work odd = turns.add([] { throw 1; });
  EXPECT_EQ(message_of<InvalidArgument>([&] { bad.wait(); }), "another size");
  EXPECT_THROW(odd.wait(), int);
  turns.add([] {}).wait();
  EXPECT_EQ(heard, "an exception of an unknown type");
}

TEST(Courier, GoesOnUntilNothingIsUnderWay) {
  std::atomic<int> left = 0;
  std::promise<void> last;
  Courier courier([&] {
    if (left.fetch_sub(1) == 1) last.set_value();
    return left.load() > 0;
  });
  left = 5;
  courier.call();
  EXPECT_EQ(last.get_future().wait_for(std::chrono::minutes(1)), std::future_status::ready);
}

}  // namespace
}  // namespace lockstep::hierarchy
