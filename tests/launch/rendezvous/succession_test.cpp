// Worlds that go on in the launcher of another node than the one that served them.

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

class Succession : public Worlds {
 protected:
  // After three generations of three nodes, of which two are left.
  static WorldPast past() { return {.generation = 3, .history = {.restarts = 1}, .nodes = 2}; }
};

TEST_F(Succession, PlansNameTheNodesThatWouldServe) {
  make(1, 3);
  NodeFacts serving = node("2"), second = node("3"), third = node("4");
  serving.serves = true;
  second.standby_port = 7;
  take(world_->join(2, serving, now_));
  take(world_->join(3, second, now_));
  take(world_->join(4, third, now_));
  ASSERT_THAT(told(Kind::kStart), ElementsAre(2, 3, 4));
  EXPECT_THAT(order_to(4).plan.heirs, ElementsAre("10.0.0.3:7")) << "4 listens nowhere";
}

TEST_F(Succession, StartsAsSoonAsAllAreBack) {
  make(1, 3, 5, true, past());
  join(2);
  EXPECT_THAT(told(Kind::kWait), ElementsAre(2));
  join(3);
  EXPECT_THAT(told(Kind::kStart), ElementsAre(2, 3));
  EXPECT_EQ(order_to(2).plan.generation, 4);
  EXPECT_EQ(order_to(2).plan.restart, 3);
  EXPECT_EQ(order_to(2).plan.history.restarts, 1) << "the loss itself counts as none";
  EXPECT_EQ(order_to(2).plan.max_restarts, 5 + 3 - 1);
}

TEST_F(Succession, WaitsForTheOthersAndThenStartsWithout) {
  make(1, 3, 5, true, past());
  join(2);
  EXPECT_EQ(world_->due(), now_ + seconds(10));
  pass(milliseconds(9'999));
  EXPECT_THAT(last_, IsEmpty());
  pass(milliseconds(1));
  EXPECT_THAT(told(Kind::kStart), ElementsAre(2));
  take(world_->lose(2, now_));
  join(3);
  EXPECT_THAT(told(Kind::kStart), ElementsAre(3)) << "from then on it waits for nobody";
}

TEST_F(Succession, EndsWhereTooFewAreBack) {
  make(2, 3, 5, true, past());
  join(2);
  pass(seconds(10));
  EXPECT_EQ(order_to(2).kind, Kind::kFinish);
  EXPECT_EQ(order_to(2).code, 5);
  EXPECT_EQ(order_to(2).text, "only 1 of at least 2 nodes came within 10 s");
}

TEST_F(Succession, KeepsWhatIsKnownOfProgress) {
  WorldPast known = past();
  known.history.furthest = 50;
  known.history.code_at_furthest = 139;
  known.step = 80;
  make(1, 2, 5, true, known);
  join(2);
  join(3);
  EXPECT_EQ(order_to(2).plan.history.furthest, 80);
  end(2, failed(139, 80));
  end(3, failed(5));
  EXPECT_EQ(order_to(2).kind, Kind::kFinish) << "it died where the last generation did";
}

TEST_F(Succession, LeavesNothingToTheNodeThatStoodStill) {
  start_two(1, 3);
  take(world_->give_up("stood still"));
  EXPECT_THAT(told(Kind::kEnd), ElementsAre(2, 3));
  EXPECT_THAT(told(Kind::kFinish), ElementsAre(2, 3));
  end(2, failed(137));
  end(3, failed(137));
  EXPECT_THAT(last_, IsEmpty());
  join(4);
  EXPECT_THAT(order_to(4).text, HasSubstr("over"));
}

}  // namespace
}  // namespace lockstep::launch
