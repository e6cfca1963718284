// Nodes that are lost, join and leave.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launch/rendezvous/worlds.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = Order::Kind;
using std::chrono::seconds;

using ChangingWorlds = Worlds;

TEST_F(ChangingWorlds, OfAFixedSizeWaitForAnotherNodeInPlaceOfALostOne) {
  start_two();
  take(world_->lose(2, now_));
  EXPECT_THAT(told(Kind::kEnd), ElementsAre(3));
  end(3, failed(5));
  EXPECT_THAT(told(Kind::kWait), ElementsAre(3));
  join(4);
  EXPECT_THAT(told(Kind::kStart), ElementsAre(4, 3)) << "3 keeps its number";
  EXPECT_EQ(order_to(3).plan.node_rank, 1);
  EXPECT_EQ(order_to(4).plan.node_rank, 0);
  EXPECT_EQ(order_to(3).plan.master_address, "10.0.0.4");
}

TEST_F(ChangingWorlds, OfAFixedSizeCountALostNodeAsARestart) {
  start_two(2, 2, 0);
  take(world_->lose(2, now_));
  end(3, failed(5));
  EXPECT_EQ(order_to(3).kind, Kind::kFinish);
  EXPECT_EQ(order_to(3).code, 5);
  EXPECT_THAT(order_to(3).text, HasSubstr("host 2 was lost"));
}

TEST_F(ChangingWorlds, ThatAreElasticGoOnWithoutALostNode) {
  start_two(1, 3, 0);
  take(world_->lose(2, now_));
  end(3, failed(1));
  EXPECT_THAT(told(Kind::kStart), ElementsAre(3)) << "that was no failure of its own";
  EXPECT_EQ(order_to(3).plan.node_rank, 0);
  EXPECT_EQ(order_to(3).plan.world_size, 2);
  EXPECT_EQ(order_to(3).plan.restart, 1);
  EXPECT_EQ(order_to(3).plan.max_restarts, 1);
}

TEST_F(ChangingWorlds, ThatAreElasticTakeInOneThatJoins) {
  start_two(1, 3, 0);
  take(world_->join(4, heir(4), now_));
  EXPECT_THAT(told(Kind::kEnd), ElementsAre(2, 3));
  EXPECT_TRUE(order_to(2).gently);
  EXPECT_THAT(order_to(4).plan.heirs, ElementsAre("10.0.0.4:7")) << "in case this server is lost";
  end(2, ended(75));
  take(world_->fail(3, 1, "it has seen the others end"));
  end(3, failed(1));
  EXPECT_THAT(told(Kind::kStart), ElementsAre(2, 3, 4)) << "that does not count";
  EXPECT_EQ(order_to(4).plan.world_size, 6);
}

/// Nodes that have a run in their output folders.
class WorldsOfRuns : public ChangingWorlds {
 protected:
  void join_with(NodeId id, const std::string& run, std::int64_t had = 0) {
    NodeFacts facts = heir(id);
    facts.run = run;
    take(world_->join(id, facts, now_, had));
  }

  void end_with(NodeId id, const std::string& run, int code = 75) {
    NodeEnd end = ended(code);
    end.run = run;
    this->end(id, end);
  }

  void expect_refused(NodeId id, const std::string& ours = "is ours") const {
    EXPECT_EQ(order_to(id).kind, Kind::kRefuse);
    EXPECT_THAT(
        order_to(id).text, HasSubstr("its output folder holds run other, and the run that"));
    EXPECT_THAT(order_to(id).text, HasSubstr(" goes on without it " + ours));
  }
};

TEST_F(WorldsOfRuns, RefuseOneThatHasAnotherAndGoOn) {
  start_two(1, 3);
  take(world_->lose(2, now_));
  end_with(3, "ours", 5);
  EXPECT_THAT(told(Kind::kStart), ElementsAre(3));
  join_with(4, "other");
  expect_refused(4);
  EXPECT_THAT(told(Kind::kEnd), ElementsAre()) << "the ranks train on";
  join_with(5, "ours");
  EXPECT_THAT(told(Kind::kEnd), ElementsAre(3));
  end_with(3, "ours");
  EXPECT_THAT(told(Kind::kStart), ElementsAre(3, 5));
}

TEST_F(WorldsOfRuns, RefuseItOnceTheyKnowWhichIsTheirs) {
  start_two(1, 3);
  join_with(4, "other");
  EXPECT_THAT(told(Kind::kEnd), ElementsAre(2, 3)) << "they have saved nothing so far";
  end_with(2, "");
  end_with(3, "ours");
  expect_refused(4);
  EXPECT_THAT(told(Kind::kStart), ElementsAre(2, 3));
}

// A member that was lost has saved what the others hear of when their ranks have ended.
TEST_F(WorldsOfRuns, RefuseItThoughTheyHaveSavedNothing) {
  start_two(1, 3);
  join_with(4, "other");
  end_with(2, "");
  take(world_->lose(3, now_));
  expect_refused(4, "has saved nothing so far");
  EXPECT_THAT(told(Kind::kStart), ElementsAre(2));
}

TEST_F(WorldsOfRuns, TakeAMemberBackThatHasSavedBeforeTheyKnow) {
  start_two(1, 3);
  take(world_->lose(3, now_));
  join_with(4, "ours");
  EXPECT_THAT(told(Kind::kRefuse), ElementsAre()) << "2 is still ending";
  end_with(2, "ours");
  EXPECT_THAT(told(Kind::kStart), ElementsAre(2, 4));
}

TEST_F(WorldsOfRuns, KnowThatTheyOverwriteAnother) {
  make(1, 3);
  join_with(2, "old");
  pass(seconds(30));
  ASSERT_THAT(told(Kind::kStart), ElementsAre(2));
  join_with(3, "ours");
  EXPECT_THAT(told(Kind::kEnd), ElementsAre(2)) << "from the folder that both share";
  end_with(2, "ours");
  EXPECT_THAT(told(Kind::kStart), ElementsAre(2, 3));
}

TEST_F(WorldsOfRuns, KnowTheirsAfterTheServerIsLost) {
  make(1, 3, 3, true, {.generation = 4, .nodes = 2, .regather = seconds(5)});
  join_with(4, "other");
  join_with(2, "ours", 4);
  end(2, {.generation = 4, .code = 5, .run = "ours"});
  expect_refused(4);
  pass(seconds(5));
  EXPECT_THAT(told(Kind::kStart), ElementsAre(2));
}

TEST_F(WorldsOfRuns, RefuseASpareOfAnotherWhenTheirsIsDone) {
  start_two(1, 2);
  join_with(4, "other");
  EXPECT_THAT(told(Kind::kWait), ElementsAre(4)) << "they have saved nothing so far";
  end_with(2, "ours", 0);
  end_with(3, "ours", 0);
  expect_refused(4);
  EXPECT_THAT(told(Kind::kFinish), ElementsAre(2, 3));
}

TEST_F(WorldsOfRuns, LeaveTheFirstStartToTheRanks) {
  make(2, 2);
  join_with(2, "ours");
  join_with(3, "other");
  EXPECT_THAT(told(Kind::kStart), ElementsAre(2, 3)) << "nobody knows whose is to go on";
}

TEST_F(ChangingWorlds, ThatAreFullKeepSpares) {
  start_two();
  join(4);
  EXPECT_THAT(told(Kind::kWait), ElementsAre(4));
  take(world_->lose(3, now_));
  end(2, failed(5));
  EXPECT_THAT(told(Kind::kStart), ElementsAre(2, 4));
}

TEST_F(ChangingWorlds, DoNotGrowOnceSomeAreDone) {
  start_two(1, 3);
  end(2, ended());
  join(4);
  EXPECT_THAT(told(Kind::kWait), ElementsAre(4));
  end(3, ended());
  EXPECT_THAT(told(Kind::kFinish), ElementsAre(2, 3, 4));
}

TEST_F(ChangingWorlds, LetANodeGoThatIsAskedToStop) {
  start_two(1, 3);
  NodeEnd stopped = ended(75);
  stopped.signal = 15;
  end(3, stopped);
  EXPECT_THAT(told(Kind::kEnd), ElementsAre(2));
  EXPECT_TRUE(order_to(2).gently);
  end(2, ended(75));
  EXPECT_EQ(order_to(3).kind, Kind::kFinish);
  EXPECT_EQ(order_to(3).code, 75);
  EXPECT_EQ(order_to(2).kind, Kind::kStart);
}

TEST_F(ChangingWorlds, EndWithANodeThatIsAskedToStopIfTooFewAreLeft) {
  start_two();
  NodeEnd stopped = ended(143);
  stopped.signal = 15;
  end(3, stopped);
  end(2, ended());
  EXPECT_THAT(told(Kind::kFinish), ElementsAre(3, 2));
  EXPECT_EQ(order_to(2).code, 143);
  EXPECT_THAT(order_to(2).text, HasSubstr("host 3 was asked to stop, and too few are left"));
}

TEST_F(ChangingWorlds, LetANodeGoThatWaits) {
  make(2, 3);
  join(2);
  take(world_->leave(2, 143, now_));
  EXPECT_EQ(order_to(2).code, 143);
  join(3);
  join(4);
  pass(seconds(30));
  EXPECT_THAT(told(Kind::kStart), ElementsAre(3, 4));
}

}  // namespace
}  // namespace lockstep::launch
