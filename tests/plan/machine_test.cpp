#include "lockstep/plan/machine.h"

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"

namespace lockstep::plan {
namespace {

void expect_link(const std::string& text, double latency, double bytes_per_second) {
  const Link link = parse_link(text);
  EXPECT_DOUBLE_EQ(link.latency, latency) << text;
  EXPECT_DOUBLE_EQ(link.bytes_per_second, bytes_per_second) << text;
}

TEST(Link, IsReadAsPeopleWriteIt) {
  expect_link("25Gbit,50us", 50e-6, 25e9 / 8);
  expect_link("1ms,100Mbit", 1e-3, 12.5e6);
  expect_link("12GB", 0, 12e9);
  EXPECT_EQ(parse_link("12GB", 50e-6).latency, 50e-6);
  EXPECT_EQ(parse_link("12GB,0us", 50e-6).latency, 0);
  expect_link(text_of(parse_link("2.5Gbit,7us")), 7e-6, 2.5e9 / 8);
}

TEST(Link, RefusesOtherTexts) {
  for (const char* text :
      {"", "25", "50us", "25Gbit,50us,1ms", "0Gbit", "-1Gbit", "25Gbit,", "GB"}) {
    EXPECT_THAT(::lockstep::testing::message_of<InvalidArgument>([&] { parse_link(text); }),
        ::testing::HasSubstr("25Gbit,50us"))
        << text;
  }
}

TEST(Link, TakesItsLatencyAndThenItsRate) {
  EXPECT_DOUBLE_EQ((Link{.latency = 1, .bytes_per_second = 10}).seconds(20), 3);
  EXPECT_DOUBLE_EQ((Link{.latency = 1}).seconds(20), 1);
}

TEST(Link, IsAsItWasMeasured) {
  const Link link{
      .latency = 7e-3, .bytes_per_second = 1e6, .measured = CostCurve({{10, 3}, {110, 5}})};
  EXPECT_DOUBLE_EQ(link.seconds(60), 4);
  EXPECT_EQ(text_of(link), "8Mbit,7000us, measured");
}

TEST(Company, SlowsPlacesDownUntilTheyTakeTurns) {
  const Company company{.compute = {1, 1.2}, .memory = {1, 1.5}, .cores = 2};
  EXPECT_DOUBLE_EQ(company.slows_compute(0.5), 1);
  EXPECT_DOUBLE_EQ(company.slows_compute(1.5), 1.1);
  EXPECT_DOUBLE_EQ(company.slows_compute(2), 1.2);
  EXPECT_DOUBLE_EQ(company.slows_compute(4), 2.4) << "half of the time each";
  EXPECT_DOUBLE_EQ(company.slows_memory(3), 2.25);
  EXPECT_DOUBLE_EQ((Company{.compute = {1, 1.2}}).slows_compute(4), 1.2) << "a core each";
}

TEST(Company, SlowsPlacesThatTakeTurnsByMoreThanTheirTurns) {
  const Company company{.compute = {1, 1.2}, .memory = {1, 1.5}, .cores = 2, .crowded = 1.25};
  EXPECT_DOUBLE_EQ(company.slows_by_turns(2), 1) << "each has its core";
  EXPECT_DOUBLE_EQ(company.slows_by_turns(4), 2.5);
  EXPECT_DOUBLE_EQ(company.slows_compute(2), 1.2);
  EXPECT_DOUBLE_EQ(company.slows_compute(4), 1.2 * 2.5);
  EXPECT_DOUBLE_EQ(company.slows_memory(4), 1.5 * 2.5);
}

TEST(Company, RefusesASpeedUp) {
  EXPECT_THROW(check_company({.compute = {}}), InvalidArgument);
  EXPECT_THROW(check_company({.compute = {1, 0.9}}), InvalidArgument);
  EXPECT_THROW(check_company({.memory = {1.1}}), InvalidArgument);
  EXPECT_THROW(check_company({.cores = -1}), InvalidArgument);
  EXPECT_THROW(check_company({.crowded = 0.9}), InvalidArgument);
}

TEST(Machine, RefusesWhatCannotBe) {
  EXPECT_THROW(check_machine({.nodes = 0}), InvalidArgument);
  EXPECT_THROW(check_machine({.within = {.core_share = 2}}), InvalidArgument);
  EXPECT_THROW(check_machine({.jitter = std::nan("")}), InvalidArgument);
  check_machine({});
}

TEST(Machine, TheSlowestOfManyIsThatOfDraws) {
  std::mt19937_64 engine(1);
  std::normal_distribution<double> draw(1, 0.05);
  for (const int places : {2, 8, 64}) {
    double sum = 0;
    for (int round = 0; round < 20000; ++round) {
      double slowest = 0;
      for (int place = 0; place < places; ++place) slowest = std::max(slowest, draw(engine));
      sum += slowest;
    }
    EXPECT_NEAR(slowest_of(places, 0.05), sum / 20000, 0.002) << places;
  }
  EXPECT_EQ(slowest_of(1, 0.05), 1);
  EXPECT_EQ(slowest_of(8, 0), 1);
}

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
  EXPECT_DOUBLE_EQ(2 * all_gather_seconds(800, {1, 8}, kMachine),
      all_reduce_seconds(800, {1, 8}, kMachine, AllReduce::kRing));
}

TEST(CostCurve, IsAStraightLineBetweenItsPoints) {
  const CostCurve curve({{32, 5}, {8, 2}});
  EXPECT_DOUBLE_EQ(curve(8), 2);
  EXPECT_DOUBLE_EQ(curve(20), 3.5);
  EXPECT_DOUBLE_EQ(curve(32), 5);
}

TEST(CostCurve, GoesOnBeyondTheLastPoint) {
  EXPECT_DOUBLE_EQ(CostCurve({{8, 2}, {32, 5}})(40), 6);
  EXPECT_DOUBLE_EQ(CostCurve({{8, 5}, {32, 4}})(400), 4) << "a falling line does not go on";
}

TEST(CostCurve, LiesBelowTheFirstPointBetweenItsShareAndAllOfIt) {
  EXPECT_DOUBLE_EQ(CostCurve({{8, 2}, {32, 5}})(4), 1.5);
  EXPECT_DOUBLE_EQ(CostCurve({{8, 2}, {16, 8}})(4), 1) << "not less than half of it";
  EXPECT_DOUBLE_EQ(CostCurve({{8, 2}, {16, 1}})(4), 2) << "not more than all of it";
}

TEST(CostCurve, OfOnePointIsProportional) {
  EXPECT_DOUBLE_EQ(CostCurve({{8, 2}})(32), 8);
  EXPECT_DOUBLE_EQ(CostCurve()(32), 0);
  EXPECT_DOUBLE_EQ(CostCurve({{8, 2}})(0), 0);
}

TEST(CostCurve, FitsTheLineThroughItsPoints) {
  const auto line = CostCurve({{1, 2}, {2, 2}, {3, 5}}).line();
  EXPECT_NEAR(line.per_sample, 1.5, 1e-9);
  EXPECT_NEAR(line.fixed, 0, 1e-9);
}

TEST(CostCurve, IsManyTimesAsLong) { EXPECT_DOUBLE_EQ(CostCurve({{8, 2}}).times(3)(8), 6); }

TEST(CostCurve, RefusesWhatIsNoCost) {
  EXPECT_THROW(CostCurve({{0, 1}}), InvalidArgument);
  EXPECT_THROW(CostCurve({{1, -1}}), InvalidArgument);
  EXPECT_THROW(CostCurve({{1, 1}, {1, 2}}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::plan
