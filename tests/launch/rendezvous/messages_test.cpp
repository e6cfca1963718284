#include "lockstep/launch/rendezvous/messages.h"

#include <gtest/gtest.h>

#include "lockstep/core/error.h"

namespace lockstep::launch {
namespace {

TEST(RendezvousMessages, OfNodesAreReadAsTheyWereWritten) {
  const AgentMessage join{.kind = AgentMessage::Kind::kJoin,
      .facts = {.host = "h",
          .address = "10.0.0.1",
          .port = 7,
          .workers = 3,
          .serves = true,
          .standby_port = 11,
          .run = "r1",
          .same = {{"a", "b"}}}};
  const AgentMessage read = agent_message_of(bytes_of(join));
  EXPECT_EQ(read.facts.host, "h");
  EXPECT_EQ(read.facts.workers, 3);
  EXPECT_TRUE(read.facts.serves);
  EXPECT_EQ(read.facts.standby_port, 11);
  EXPECT_EQ(read.facts.run, "r1");
  EXPECT_EQ(read.facts.same, join.facts.same);

  const AgentMessage ended{.kind = AgentMessage::Kind::kEnded,
      .end = {.generation = 4,
          .code = 137,
          .failure = ExitStatus{.signal = 9},
          .signal = 15,
          .step = 50,
          .port = 9,
          .run = "r2"}};
  const NodeEnd end = agent_message_of(bytes_of(ended)).end;
  EXPECT_EQ(end.generation, 4);
  EXPECT_EQ(end.code, 137);
  EXPECT_EQ(end.failure->signal, 9);
  EXPECT_EQ(end.signal, 15);
  EXPECT_EQ(end.step, 50);
  EXPECT_EQ(end.port, 9);
  EXPECT_EQ(end.run, "r2");
  const NodeEnd none = agent_message_of(bytes_of(AgentMessage{})).end;
  EXPECT_FALSE(none.failure || none.signal || none.step);
}

TEST(RendezvousMessages, SayWhereAWorldIs) {
  const AgentMessage moved{
      .kind = AgentMessage::Kind::kMoved, .generation = 7, .text = "a:1", .founder = -42};
  const AgentMessage read = agent_message_of(bytes_of(moved));
  EXPECT_EQ(read.kind, moved.kind);
  EXPECT_EQ(read.generation, 7);
  EXPECT_EQ(read.text, "a:1");
  EXPECT_EQ(read.founder, -42);
}

TEST(RendezvousMessages, SayForWhatRanksWait) {
  const AgentMessage waits{.kind = AgentMessage::Kind::kWaits,
      .generation = 7,
      .wait = NodeWait{
          .begun = {{1, 42}, {~std::uint64_t{0}, 3}}, .text = "rank 0 waits", .in_step = true}};
  const AgentMessage read = agent_message_of(bytes_of(waits));
  EXPECT_EQ(read.generation, 7);
  EXPECT_EQ(read.wait, waits.wait);
  EXPECT_FALSE(agent_message_of(bytes_of({.kind = AgentMessage::Kind::kWaits})).wait);
  const std::string bytes = bytes_of(waits);
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THROW(agent_message_of(bytes.substr(0, size)), DataError) << size;
}

TEST(RendezvousMessages, OfTheServerAreReadAsTheyWereWritten) {
  NodePlan plan;
  plan.generation = 3;
  plan.node_rank = 1;
  plan.nodes = 2;
  plan.first_rank = 4;
  plan.world_size = 6;
  plan.master_address = "a";
  plan.master_port = 8;
  plan.restart = 2;
  plan.max_restarts = 5;
  plan.store_key = "k";
  plan.successors = {"a:1", "b:2"};
  plan.founder = 1234567890123;
  plan.origin = "c:3";
  plan.history = {.restarts = 1, .furthest = 70, .code_at_furthest = 139};
  const Order order{.kind = Order::Kind::kStart,
      .plan = plan,
      .generation = 9,
      .gently = true,
      .code = 75,
      .text = "t"};
  const Order read = order_of(bytes_of(order));
  EXPECT_EQ(read.kind, order.kind);
  EXPECT_EQ(read.generation, 9);
  EXPECT_TRUE(read.gently);
  EXPECT_EQ(read.code, 75);
  EXPECT_EQ(read.text, "t");
  EXPECT_EQ(read.plan.first_rank, 4);
  EXPECT_EQ(read.plan.world_size, 6);
  EXPECT_EQ(read.plan.master_port, 8);
  EXPECT_EQ(read.plan.max_restarts, 5);
  EXPECT_EQ(read.plan.store_key, "k");
  EXPECT_EQ(read.plan.successors, order.plan.successors);
  EXPECT_EQ(read.plan.founder, order.plan.founder);
  EXPECT_EQ(read.plan.origin, "c:3");
  EXPECT_EQ(read.plan.history.restarts, 1);
  EXPECT_EQ(read.plan.history.furthest, 70);
  EXPECT_EQ(read.plan.history.code_at_furthest, 139);
  EXPECT_FALSE(order_of(bytes_of(Order{})).plan.history.furthest);
}

TEST(RendezvousMessages, ThatEndTooEarlyOrAreOutOfRangeAreRefused) {
  const std::string bytes = bytes_of(AgentMessage{.kind = AgentMessage::Kind::kJoin});
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THROW(agent_message_of(bytes.substr(0, size)), DataError) << size;
  EXPECT_THROW(agent_message_of(bytes + "x"), DataError);
  EXPECT_THROW(agent_message_of(bytes_of(
                   AgentMessage{.kind = AgentMessage::Kind::kJoin, .facts = {.workers = 0}})),
      DataError);
  EXPECT_THROW(order_of(bytes_of(Order{.code = 1000})), DataError);
  EXPECT_THROW(order_of("\x63"), DataError);
}

TEST(NodeFacts, WhatDiffersIsNamed) {
  const NodeFacts here{.host = "a", .same = {{"the program", "A"}, {"the size", "1"}}};
  EXPECT_EQ(difference(here, here), "");
  const NodeFacts other{.host = "b", .same = {{"the program", "B"}, {"more", "2"}}};
  EXPECT_EQ(difference(here, other),
      "the program is A, on host b it is B; the size is 1, on host b it is not given; more is not "
      "given, on host b it is 2");
}

}  // namespace
}  // namespace lockstep::launch
