#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/launch/rendezvous/play.h"
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

// Nodes that are lost, join and leave.

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
  take(world_->join(4, successor(4), now_));
  EXPECT_THAT(told(Kind::kEnd), ElementsAre(2, 3));
  EXPECT_TRUE(order_to(2).gently);
  EXPECT_THAT(order_to(4).plan.successors, ElementsAre("10.0.0.4:7"))
      << "in case this server is lost";
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
    NodeFacts facts = successor(id);
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
  start_two(2, 2);
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

RC_GTEST_PROP(AnyWorld, KeepsItsRulesWhateverHappens, ()) {
  play([](int count) { return *rc::gen::inRange(0, count); });
}

}  // namespace
}  // namespace lockstep::launch
