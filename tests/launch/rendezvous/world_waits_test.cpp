#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launch/rendezvous/worlds.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = Order::Kind;

class WorldsThatWait : public Worlds {
 protected:
  void wait(NodeId id, std::uint64_t begun, std::int64_t generation = 1, bool in_step = false) {
    take(world_->wait(id, generation,
        NodeWait{
            .begun = {{1, begun}}, .text = "ranks of " + std::to_string(id), .in_step = in_step}));
  }

  void go_on(NodeId id) { take(world_->wait(id, 1, std::nullopt)); }
};

TEST_F(WorldsThatWait, HangWhenAllNodesDoAndOneIsBehind) {
  start_two();
  wait(2, 42);
  EXPECT_THAT(last_, IsEmpty()) << "the ranks of node 3 may be at work";
  wait(3, 41);
  EXPECT_THAT(told(Kind::kHang), ElementsAre(3));
  EXPECT_EQ(order_to(3).generation, 1);
  EXPECT_EQ(order_to(3).text, "on host 2 ranks of 2");
}

TEST_F(WorldsThatWait, HangAtTheFirstNodeWhenNoneIsBehind) {
  start_two();
  wait(3, 42);
  wait(2, 42);
  EXPECT_THAT(told(Kind::kHang), ElementsAre(2));
}

TEST_F(WorldsThatWait, DoNotHangInACollectiveThatAllHaveBegun) {
  start_two();
  wait(3, 42, 1, true);
  wait(2, 42, 1, true);
  EXPECT_THAT(last_, IsEmpty()) << "the network is slow";
  wait(2, 41, 1, true);
  EXPECT_THAT(told(Kind::kHang), ElementsAre(2));
}

TEST_F(WorldsThatWait, DoNotHangWhileOneGoesOn) {
  start_two();
  wait(2, 42);
  go_on(2);
  wait(3, 41);
  EXPECT_THAT(last_, IsEmpty());
  wait(2, 43);
  EXPECT_THAT(told(Kind::kHang), ElementsAre(3));
}

TEST_F(WorldsThatWait, HearOfNoOtherGeneration) {
  start_two();
  wait(2, 42);
  wait(3, 41, 0);
  EXPECT_THAT(last_, IsEmpty());
  take(world_->fail(2, 1, "it died"));
  wait(3, 41);
  EXPECT_THAT(last_, IsEmpty()) << "it is being ended";
  end(2, failed(1));
  end(3, ended());
  ASSERT_EQ(world_->generation(), 2);
  wait(3, 41, 2);
  EXPECT_THAT(last_, IsEmpty()) << "node 2 says nothing yet of this one";
}

TEST_F(WorldsThatWait, HangWhenTheOthersHaveEnded) {
  start_two();
  wait(2, 42, 1, true);
  end(3, ended());
  EXPECT_THAT(told(Kind::kHang), ElementsAre(2)) << "nobody comes any more";
}

TEST_F(WorldsThatWait, BeginAgainAfterAPauseWhenTheyFailSoon) {
  start_two(2, 2, 9);
  for (int round = 0; round < 2; ++round) {
    take(world_->fail(2, world_->generation(), "it died"));
    end(3, ended());
    end(2, failed(1));
    if (round == 0) EXPECT_THAT(told(Kind::kStart), ElementsAre(2, 3)) << "at once";
  }
  EXPECT_THAT(told(Kind::kWait), ElementsAre(2, 3));
  EXPECT_THAT(order_to(2).text, HasSubstr("again in 1 s"));
  EXPECT_EQ(world_->due(), now_ + std::chrono::seconds(1));
  pass(std::chrono::milliseconds(999));
  EXPECT_THAT(last_, IsEmpty());
  pass(std::chrono::milliseconds(1));
  EXPECT_THAT(told(Kind::kStart), ElementsAre(2, 3));
}

}  // namespace
}  // namespace lockstep::launch
