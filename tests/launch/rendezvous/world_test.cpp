#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launch/rendezvous/worlds.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = Order::Kind;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_F(Worlds, StartWhenAllAreThere) {
  make(2, 2);
  join(2, 3);
  EXPECT_THAT(told(Kind::kWait), ElementsAre(2));
  join(3, 1);
  EXPECT_THAT(told(Kind::kStart), ElementsAre(2, 3));
  const NodePlan &first = order_to(2).plan, &second = order_to(3).plan;
  EXPECT_EQ(first.generation, 1);
  EXPECT_EQ(first.node_rank, 0);
  EXPECT_EQ(first.first_rank, 0);
  EXPECT_EQ(second.node_rank, 1);
  EXPECT_EQ(second.first_rank, 3);
  EXPECT_EQ(second.world_size, 4);
  EXPECT_EQ(second.nodes, 2);
  EXPECT_EQ(second.master_address, "10.0.0.2");
  EXPECT_EQ(second.master_port, 1000);
  EXPECT_TRUE(world_->is_running(1));
}

TEST_F(Worlds, WaitForMoreUpToTheLastCall) {
  make(1, 3);
  join(2);
  pass(milliseconds(29'999));
  EXPECT_THAT(last_, IsEmpty());
  EXPECT_EQ(world_->due(), now_ + milliseconds(1));
  join(3);
  pass(milliseconds(1));
  EXPECT_THAT(told(Kind::kStart), ElementsAre(2, 3));
}

TEST_F(Worlds, GiveUpWhenTooFewCome) {
  make(2, 4);
  join(2);
  pass(seconds(600));
  EXPECT_EQ(order_to(2).kind, Kind::kFinish);
  EXPECT_EQ(order_to(2).code, 5);
  EXPECT_EQ(order_to(2).text, "only 1 of at least 2 nodes came within 600 s");
}

TEST_F(Worlds, RefuseANodeThatDiffers) {
  make(2, 2);
  NodeFacts other = node("x");
  other.same = {{"the program", "B"}};
  take(world_->join(2, other, now_));
  EXPECT_EQ(order_to(2).kind, Kind::kRefuse);
  EXPECT_EQ(order_to(2).text, "the program is A, on host x it is B");
  join(3);
  join(4);
  EXPECT_THAT(told(Kind::kStart), ElementsAre(3, 4));
}

TEST_F(Worlds, AreDoneWhenAllAre) {
  start_two();
  end(2, ended());
  EXPECT_THAT(last_, IsEmpty());
  end(3, ended());
  EXPECT_THAT(told(Kind::kFinish), ElementsAre(2, 3));
  EXPECT_EQ(order_to(2).code, 0);
  join(4);
  EXPECT_EQ(order_to(4).kind, Kind::kRefuse);
}

TEST_F(Worlds, StartAgainTogetherWhenARankFails) {
  start_two();
  take(world_->fail(3, 1, "rank 3 died"));
  EXPECT_THAT(told(Kind::kEnd), ElementsAre(2)) << "3 is about it by itself";
  EXPECT_FALSE(order_to(2).gently);
  EXPECT_EQ(order_to(2).text, "rank 3 died");
  EXPECT_FALSE(world_->is_running(1));
  end(3, failed(137));
  EXPECT_THAT(last_, IsEmpty()) << "2 has not ended";
  end(2, ended(143));
  EXPECT_THAT(told(Kind::kStart), ElementsAre(2, 3));
  EXPECT_EQ(order_to(2).plan.generation, 2);
  EXPECT_EQ(order_to(2).plan.restart, 1);
  EXPECT_EQ(order_to(2).plan.max_restarts, 3);
}

TEST_F(Worlds, StartAgainAsOftenAsAllowed) {
  start_two(2, 2, 1);
  for (const std::int64_t step : {10, 20}) {
    take(world_->fail(2, world_->generation(), "it died"));
    end(3, ended());
    end(2, failed(1, step));
  }
  EXPECT_THAT(told(Kind::kFinish), ElementsAre(2, 3));
  EXPECT_EQ(order_to(3).code, 1);
  EXPECT_EQ(order_to(3).text, "restarts used up: --max-restarts 1");
}

TEST_F(Worlds, GiveUpWithoutProgressOnAnyNode) {
  start_two(2, 2, 9);
  for (int round = 0; round < 2; ++round) {
    take(world_->fail(2, world_->generation(), "it died"));
    NodeEnd furthest = ended();
    furthest.step = 50;  // the other node's ranks came further than those of the one that failed
    end(3, furthest);
    end(2, failed(1, 40 + round));
  }
  EXPECT_EQ(order_to(2).kind, Kind::kFinish);
  EXPECT_THAT(order_to(2).text, HasSubstr("no progress: died again at step 50, as before"));
}

TEST_F(Worlds, OneThatLostItsPeersIsNotTheCause) {
  start_two();
  take(world_->fail(2, 1, "rank 0 lost its peers"));
  end(2, failed(5));
  end(3, failed(3));
  EXPECT_EQ(order_to(2).kind, Kind::kFinish);
  EXPECT_EQ(order_to(2).code, 3) << "bad data: it would come again";
}

TEST_F(Worlds, HearNothingOfOldGenerations) {
  start_two();
  take(world_->fail(2, 1, "it died"));
  const NodeEnd old = failed(1, 5);
  end(2, old);
  end(3, ended());
  ASSERT_EQ(world_->generation(), 2);
  take(world_->fail(3, 1, "late news"));
  EXPECT_THAT(last_, IsEmpty());
  end(3, old);
  EXPECT_THAT(last_, IsEmpty());
  EXPECT_TRUE(world_->is_running(2));
}

}  // namespace
}  // namespace lockstep::launch
