#include "lockstep/plan/machine.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/plan/profile/company.h"

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

}  // namespace
}  // namespace lockstep::plan
