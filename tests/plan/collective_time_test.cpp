#include "lockstep/plan/collective_time.h"

#include <algorithm>
#include <gtest/gtest.h>

namespace lockstep::plan {
namespace {

const Machine kMachine{.nodes = 4,
    .places = 8,
    .within = {.latency = 1, .bytes_per_second = 100},
    .between = {.latency = 5, .bytes_per_second = 10}};

TEST(AllReduce, OfARingIsItsClosedForm) {
  EXPECT_DOUBLE_EQ(
      all_reduce_seconds(800, {1, 8}, kMachine, AllReduce::kRing), 14 * (1 + 100 / 100.0));
  EXPECT_DOUBLE_EQ(
      all_reduce_seconds(800, {4, 1}, kMachine, AllReduce::kRing), 6 * (5 + 200 / 10.0));
}

TEST(AllReduce, OfARingOverNodesWaitsForTheSlowerLink) {
  // 2 x 31 messages of an 32nd, each over the link between nodes somewhere.
  EXPECT_DOUBLE_EQ(
      all_reduce_seconds(3200, {4, 8}, kMachine, AllReduce::kRing), 62 * (5 + 100 / 10.0));
}

TEST(AllReduce, OfATreeHasFewMessages) {
  EXPECT_DOUBLE_EQ(all_reduce_seconds(100, {1, 8}, kMachine, AllReduce::kTree), 6 * 1 + 2 * 1.0);
  EXPECT_EQ(fastest_all_reduce(1, {4, 8}, kMachine), AllReduce::kTree);
}

TEST(AllReduce, OfAHierarchyCrossesTheNodesOnce) {
  EXPECT_DOUBLE_EQ(all_reduce_seconds(800, {4, 8}, kMachine, AllReduce::kHierarchical),
      14 * (1 + 100 / 100.0) + 6 * (5 + 200 / 10.0));
}

// A chunk's bytes between the nodes take as long as half a ring within one, of which each has two.
TEST(AllReduce, OfAHierarchyHidesTheFasterLevel) {
  Machine machine{.nodes = 2,
      .places = 2,
      .within = {.bytes_per_second = 1e9},
      .between = {.bytes_per_second = 1e9}};
  const double bytes = 64e6;
  const double within = bytes / 1e9, between = bytes / 1e9;
  const auto seconds = [&] {
    return all_reduce_seconds(bytes, {2, 2}, machine, AllReduce::kHierarchical);
  };
  EXPECT_GT(seconds(), std::max(within, between));
  EXPECT_LT(seconds(), 1.1 * std::max(within, between));
  machine.within.bytes_per_second = 4e9;
  EXPECT_LT(seconds(), 1.05 * between) << "the link is the bound";
  EXPECT_GT(seconds(), between);
  machine.within.bytes_per_second = 1e8;
  EXPECT_LT(seconds(), 1.05 * 10 * within) << "the cores are";
}

// Each of two cores adds up all bytes within its node, and moves half of those between the nodes.
TEST(AllReduce, OfAHierarchyHidesNothingThatTheCoresDo) {
  const Machine machine{.nodes = 2,
      .places = 2,
      .within = {.bytes_per_second = 1e9, .core_share = 1},
      .between = {.bytes_per_second = 1e9, .core_share = 1}};
  const double within = 64e6 / 1e9, driven = 64e6 / 1e9 / 2;
  const double seconds = all_reduce_seconds(64e6, {2, 2}, machine, AllReduce::kHierarchical);
  EXPECT_GE(seconds, within + driven - 1e-9);
  EXPECT_LT(seconds, 1.1 * (within + driven));
  EXPECT_NEAR(core_share(64e6, {2, 2}, machine, AllReduce::kHierarchical),
      (within + driven) / seconds, 1e-9);
}

TEST(AllReduce, OfAHierarchyIsNoFasterBecauseAShortBurstIs) {
  Machine machine{.nodes = 2, .places = 2};
  machine.between.measured = CostCurve({{1e6, 0.0001}, {2e6, 0.01}, {32e6, 0.32}});
  const double across = all_reduce_seconds(64e6, {2, 1}, machine, AllReduce::kRing);
  EXPECT_GE(all_reduce_seconds(64e6, {2, 2}, machine, AllReduce::kHierarchical), across - 1e-9);
}

TEST(AllReduce, OverAMeasuredLinkHasItsMessagesOfThatSize) {
  Machine machine = kMachine;
  machine.between.measured = CostCurve({{100, 2}, {300, 7}});
  EXPECT_DOUBLE_EQ(all_reduce_seconds(800, {4, 1}, machine, AllReduce::kRing), 6 * 4.5);
}

TEST(AllReduce, IsInLevelsWhereThereAreLevels) {
  Machine machine = kMachine;
  EXPECT_EQ(usual_all_reduce({4, 8}, machine), AllReduce::kRing) << "of GPUs";
  machine.within.core_share = 1;
  EXPECT_EQ(usual_all_reduce({4, 8}, machine), AllReduce::kHierarchical);
  EXPECT_EQ(usual_all_reduce({4, 1}, machine), AllReduce::kRing);
  EXPECT_EQ(usual_all_reduce({1, 8}, machine), AllReduce::kRing);
}

TEST(AllReduce, InLevelsKeepsTheCoreWithEachLevelsShare) {
  Machine machine = kMachine;
  machine.within.core_share = 1;
  machine.between.core_share = 0.25;
  const double within = 14 * (1 + 100 / 100.0), between = 6 * (5 + 200 / 10.0);
  EXPECT_DOUBLE_EQ(core_share(800, {4, 8}, machine, AllReduce::kHierarchical),
      (within + 0.25 * between) / (within + between));
  EXPECT_DOUBLE_EQ(core_share(800, {4, 1}, machine, AllReduce::kRing), 0.25);
}

TEST(Collectives, OfOneRankTakeNoTime) {
  EXPECT_EQ(all_reduce_seconds(1e9, {1, 1}, kMachine, AllReduce::kRing), 0);
  EXPECT_EQ(all_gather_seconds(1e9, {1, 1}, kMachine), 0);
  EXPECT_EQ(core_share({1, 1}, kMachine), 0);
}

TEST(Collectives, AGatherIsHalfOfAnAllReduce) {
  EXPECT_DOUBLE_EQ(
      all_gather_seconds(800, {1, 8}, kMachine) + reduce_scatter_seconds(800, {1, 8}, kMachine),
      all_reduce_seconds(800, {1, 8}, kMachine, AllReduce::kRing));
}

}  // namespace
}  // namespace lockstep::plan
