// Worlds that go on in the launcher of another node than the one that served them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launch/rendezvous/worlds.h"

#include "lockstep/launch/rendezvous/membership.h"
#include "lockstep/net/endpoint.h"

namespace lockstep::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using Kind = Order::Kind;
using std::chrono::milliseconds;
using std::chrono::seconds;

class Succession : public Worlds {
 protected:
  // After three generations of three nodes, of which two are left.
  static WorldPast past() {
    return {.generation = 3,
        .history = {.restarts = 1},
        .nodes = 2,
        .successors = {"10.0.0.3:7"},
        .regather = seconds(10),
        .founder = 42,
        .origin = "10.0.0.1:29400"};
  }

  /// Joins, with ranks of generation 3 that have not ended unless said otherwise; 2 serves.
  void come_back(NodeId id, std::int64_t had = 3) {
    NodeFacts facts = successor(id);
    facts.serves = id == 2;
    take(world_->join(id, facts, now_, had));
  }

  void end_of_before(NodeId id, std::int64_t had = 3, std::optional<std::int64_t> step = {}) {
    end(id, {.generation = had, .code = 137, .step = step, .port = 1000});
  }
};

TEST_F(Succession, PlansNameTheNodesThatWouldServe) {
  make(1, 3);
  come_back(2, 0);
  come_back(3, 0);
  take(world_->join(4, node("4"), now_));
  ASSERT_THAT(told(Kind::kStart), ElementsAre(2, 3, 4));
  EXPECT_THAT(order_to(4).plan.successors, ElementsAre("10.0.0.3:7")) << "4 listens nowhere";
}

TEST_F(Succession, StartsAsSoonAsAllAreBack) {
  make(1, 3, 5, true, past());
  come_back(2, 0);
  EXPECT_THAT(told(Kind::kWait), ElementsAre(2));
  come_back(3, 0);
  ASSERT_THAT(told(Kind::kStart), ElementsAre(2, 3));
  EXPECT_EQ(order_to(2).plan.generation, 4);
  EXPECT_EQ(order_to(2).plan.restart, 3);
  EXPECT_EQ(order_to(2).plan.history.restarts, 1) << "the loss itself counts as none";
  EXPECT_EQ(order_to(2).plan.max_restarts, 5 + 3 - 1);
}

TEST_F(Succession, WaitsForTheOthersAndThenStartsWithout) {
  make(1, 3, 5, true, past());
  come_back(2, 0);
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
  come_back(2, 0);
  pass(seconds(10));
  EXPECT_EQ(order_to(2).kind, Kind::kFinish);
  EXPECT_EQ(order_to(2).code, 5);
  EXPECT_EQ(order_to(2).text, "only 1 of at least 2 nodes came within 10 s");
}

TEST_F(Succession, KeepsWhatIsKnownOfProgress) {
  WorldPast known = past();
  known.history.furthest = 50;
  known.history.code_at_furthest = 139;
  make(1, 2, 5, true, known);
  come_back(2);
  come_back(3);
  end_of_before(2, 3, 70);
  end_of_before(3, 3, 80);
  EXPECT_EQ(order_to(2).plan.history.furthest, 80);
  end(2, failed(139, 80));
  end(3, failed(5));
  EXPECT_EQ(order_to(2).kind, Kind::kFinish) << "it died where the last generation did";
}

TEST_F(Succession, OneWhoseRanksHaveYetToEndCountsAsComing) {
  make(2, 3, 5, true, past());
  come_back(2);
  come_back(3);
  EXPECT_THAT(told(Kind::kStart), IsEmpty());
  end_of_before(2);
  pass(seconds(600));
  EXPECT_THAT(last_, IsEmpty()) << "nobody is given up who is here";
  EXPECT_EQ(world_->due(), std::nullopt) << "nor is anything due";
  end_of_before(3);
  EXPECT_THAT(told(Kind::kStart), ElementsAre(2, 3));
  EXPECT_EQ(order_to(2).plan.generation, 4);
}

TEST_F(Succession, WhoIsLostWhileItsRanksEndIsNotAwaited) {
  make(1, 3, 5, true, past());
  come_back(2);
  come_back(3);
  end_of_before(2);
  take(world_->lose(3, now_));
  pass(seconds(10));
  EXPECT_THAT(told(Kind::kStart), ElementsAre(2));
}

TEST_F(Succession, FollowsAGenerationThatOnlyOneWasToldOf) {
  make(1, 3, 5, true, past());
  come_back(2);
  come_back(3, 4);
  end_of_before(2);
  end_of_before(3, 4);
  EXPECT_THAT(told(Kind::kStart), ElementsAre(2, 3));
  EXPECT_EQ(order_to(2).plan.generation, 5);
}

TEST_F(Succession, OneThatComesTooLateMakesTheWorldGrowOnceItsRanksHaveEnded) {
  make(1, 3, 5, true, past());
  come_back(2, 0);
  pass(seconds(10));
  ASSERT_THAT(told(Kind::kStart), ElementsAre(2));
  come_back(3, 4);  // of another generation 4
  EXPECT_THAT(told(Kind::kEnd), ElementsAre(2));
  end(2, ended(75));
  EXPECT_THAT(told(Kind::kStart), IsEmpty());
  end_of_before(3, 4);
  EXPECT_THAT(told(Kind::kStart), ElementsAre(2, 3));
}

TEST_F(Succession, OneOfUsIsToldTheCodeOfARunThatIsOver) {
  make(2, 3, 5, true, past());
  come_back(2, 0);
  pass(seconds(10));
  ASSERT_THAT(told(Kind::kFinish), ElementsAre(2));
  come_back(3);
  EXPECT_EQ(order_to(3).kind, Kind::kFinish) << "it is not refused";
  EXPECT_EQ(order_to(3).code, 5);
}

// Those who hear of a loss must go to the same one, whatever they were told last.
TEST_F(Succession, TheOrderOfThoseWhoWouldServeStaysAsNodesCome) {
  WorldPast known = past();
  known.nodes = 3;
  known.successors = {"10.0.0.4:7", "10.0.0.3:7"};
  make(1, 4, 5, true, known);
  come_back(2, 0);
  come_back(3, 0);
  EXPECT_THAT(order_to(3).plan.successors, ElementsAre("10.0.0.4:7", "10.0.0.3:7"))
      << "4 may come yet";
  come_back(5, 0);
  EXPECT_THAT(told(Kind::kStart), ElementsAre()) << "5 is none of those that come back";
  pass(seconds(10));
  EXPECT_THAT(told(Kind::kStart), ElementsAre(2, 3, 5));
  EXPECT_THAT(order_to(5).plan.successors, ElementsAre("10.0.0.3:7", "10.0.0.5:7"));
  EXPECT_EQ(order_to(5).plan.founder, 42);
  EXPECT_EQ(order_to(5).plan.origin, "10.0.0.1:29400");
}

// Else a node that had only just come would train while those that serve now still save.
TEST_F(Succession, ANewNodeStartsNothingBeforeTheOneThatServesHasComeBack) {
  WorldPast known = past();
  known.nodes = 1;
  known.successors = {};
  make(1, 3, 5, true, known);
  come_back(4, 0);
  EXPECT_THAT(told(Kind::kStart), ElementsAre());
  come_back(2);
  EXPECT_THAT(told(Kind::kStart), ElementsAre()) << "its ranks still save";
  end_of_before(2);
  EXPECT_THAT(told(Kind::kStart), UnorderedElementsAre(2, 4));
}

TEST_F(Succession, NewNodesStartNothingWithoutItThoughTheyAreEnough) {
  WorldPast known = past();
  known.nodes = 1;
  known.successors = {};
  make(1, 2, 5, true, known);
  come_back(4, 0);
  come_back(5, 0);
  EXPECT_THAT(told(Kind::kStart), ElementsAre());
  EXPECT_THAT(
      order_to(4).text, HasSubstr("2 of 1 to 2 nodes are here; others of before may still"));
  come_back(2, 0);
  EXPECT_THAT(told(Kind::kStart), ::testing::SizeIs(2));
}

TEST_F(Succession, ASpareFollowsTheOthers) {
  make(1, 2);
  for (NodeId id = 2; id <= 4; ++id) come_back(id, 0);
  EXPECT_THAT(order_to(4).plan.successors, ElementsAre("10.0.0.3:7", "10.0.0.4:7"));
  EXPECT_EQ(order_to(4).plan.generation, 1);
}

TEST_F(Succession, OneThatWasAskedToStopWhileItsRanksEndedLeaves) {
  make(1, 3, 5, true, past());
  come_back(2);
  come_back(3);
  end_of_before(2);
  end(3, {.generation = 3, .code = 143, .signal = 15, .port = 1000});
  EXPECT_EQ(order_to(3).kind, Kind::kFinish);
  EXPECT_EQ(order_to(3).code, 143);
  pass(seconds(10));
  EXPECT_THAT(told(Kind::kStart), ElementsAre(2));
}

class HandOver : public Succession {
 protected:
  // Generation 1 of three nodes, of which 2 serves.
  void start_three(int least) {
    make(least, 3);
    for (NodeId id = 2; id <= 4; ++id) come_back(id, 0);
    ASSERT_THAT(told(Kind::kStart), ElementsAre(2, 3, 4));
  }

  void stop_the_one_that_serves() {
    NodeEnd stopped = ended(75);
    stopped.signal = 15;
    end(2, stopped);
    EXPECT_THAT(told(Kind::kEnd), ElementsAre(3, 4));
    end(3, ended(75));
    end(4, ended(75));
  }
};

TEST_F(HandOver, ANodeThatServesAndIsAskedToStopIsNoWorseThanADeadOne) {
  start_three(2);
  stop_the_one_that_serves();
  EXPECT_EQ(order_to(2).kind, Kind::kFinish);
  EXPECT_EQ(order_to(2).code, 75);
  EXPECT_THAT(told(Kind::kMove), ElementsAre(3, 4));
  EXPECT_EQ(order_to(3).text, "") << "to the next one of its plan";
  join(5);
  EXPECT_EQ(order_to(5).kind, Kind::kMove);
  EXPECT_EQ(order_to(5).text, "10.0.0.3:7");
}

TEST_F(HandOver, DoesNotHappenWhereTooFewAreLeft) {
  start_three(3);
  stop_the_one_that_serves();
  EXPECT_THAT(told(Kind::kFinish), ElementsAre(2, 3, 4));
  EXPECT_EQ(order_to(3).code, 75);
}

TEST_F(HandOver, HappensAlsoBeforeTheOthersHaveCome) {
  make(1, 3, 5, true, past());
  come_back(2);
  end_of_before(2);
  take(world_->leave(2, 143, now_));
  EXPECT_EQ(order_to(2).kind, Kind::kFinish);
  come_back(3);
  EXPECT_EQ(order_to(3).kind, Kind::kMove) << "to itself: it serves next";
}

using Rivals = Succession;

TEST_F(Rivals, AWorldIsFoundedWhenOthersHaveHadTimeToSpeak) {
  to_found_ = seconds(40);
  make(1, 3);
  join(2);
  pass(seconds(30));
  EXPECT_THAT(last_, IsEmpty()) << "the last call is over";
  EXPECT_EQ(world_->due(), now_ + seconds(10));
  pass(seconds(10));
  EXPECT_THAT(told(Kind::kStart), ElementsAre(2));
}

TEST_F(Rivals, OneThatIsToldOfAnEarlierWorldFollowsIt) {
  make(1, 3);
  join(2);
  take(world_->move(42, 3, "10.0.0.3:7"));
  EXPECT_THAT(told(Kind::kMove), ElementsAre(2));
  EXPECT_EQ(order_to(2).text, "10.0.0.3:7");
  join(4);
  EXPECT_EQ(order_to(4).kind, Kind::kMove);
  pass(seconds(600));
  EXPECT_THAT(last_, IsEmpty());
}

TEST_F(Rivals, TheOneThatHasGoneOnForLongerIsFollowed) {
  start_two(1, 3);
  take(world_->move(42, 1, "10.0.0.3:7"));
  EXPECT_THAT(last_, IsEmpty());
  take(world_->move(42, 2, "10.0.0.3:7"));
  EXPECT_THAT(told(Kind::kMove), ElementsAre(2, 3));
}

TEST_F(Rivals, PartsOfOneWorldThatWereCutOffGoOn) {
  make(1, 3, 5, true, past());
  come_back(2, 0);
  pass(seconds(10));
  ASSERT_THAT(told(Kind::kStart), ElementsAre(2));
  take(world_->move(42, 9, "10.0.0.3:7"));
  EXPECT_THAT(last_, IsEmpty());
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

// Else the others would wait at a socket that the kernel keeps open, while the rest goes on.
TEST(SuccessionOfOneThatLeaves, RefusesThoseWhoWouldFollowIt) {
  const RendezvousOptions meeting{.host = "127.0.0.1", .least_nodes = 1, .most_nodes = 3};
  Service service({.least_nodes = 1, .most_nodes = 3}, seconds(5), net::Key{}, "job");
  launch::Succession leaving(service, meeting, {.endpoint = {.host = "127.0.0.1", .port = 1}}, {});
  leaving.settle("127.0.0.1", 2);
  const net::Endpoint standby{.host = "127.0.0.1", .port = leaving.facts().standby_port};
  ASSERT_GT(standby.port, 0);
  EXPECT_EQ(net::connect_to(standby, seconds(5)).error, 0);
  leaving.leave();
  EXPECT_EQ(net::connect_to(standby, seconds(5)).error, ECONNREFUSED);
  EXPECT_EQ(leaving.facts().standby_port, 0);
}

}  // namespace
}  // namespace lockstep::launch
