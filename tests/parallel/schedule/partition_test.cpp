// Cuts of a chain of layers: P11 and P8 (torchgpipe's test_balance.py and test_gpipe.py).

#include "lockstep/parallel/schedule/partition.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>
#include <random>
#include <string>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Partition, P11HasTheSmallestLargestBlockThenTheMostEvenCut) {
  EXPECT_THAT(partition({1, 2, 3, 4, 5, 6}, 2), ElementsAre(4, 2));
  EXPECT_THAT(partition({6, 5, 4, 3, 2, 1}, 2), ElementsAre(2, 4));
  EXPECT_THAT(partition({3, 1, 2}, 1), ElementsAre(3));
  // 7 in the middle bounds every cut; the rest is spread evenly, not all at one end.
  EXPECT_THAT(partition({1, 1, 1, 1, 7}, 3), ElementsAre(2, 2, 1));
  EXPECT_THAT(partition({10, 4, 1, 1, 1, 1}, 3), ElementsAre(1, 1, 4));
  // Then to even counts.
  EXPECT_THAT(partition({0, 0}, 2), ElementsAre(1, 1));
  EXPECT_THAT(partition({0, 0, 0, 0, 0}, 2), ElementsAre(2, 3));
  EXPECT_THAT(partition({5, 0, 0, 5}, 2), ElementsAre(2, 2));
  // Then to shorter first blocks.
  EXPECT_THAT(partition({5, 0, 5}, 2), ElementsAre(1, 2));
  EXPECT_THAT(partition({0.1, 0.1, 0.1, 0.1, 0.1}, 2), ElementsAre(2, 3));
  EXPECT_THAT(partition({3e-9, 3e-9, 3e-9, 3e-9, 3e-9, 3e-9, 3e-9}, 4), ElementsAre(1, 2, 2, 2));
  // Rounding breaks no tie, and the unit of the costs does not matter.
  EXPECT_THAT(partition({0.3, 0.3, 0.1, 0.3, 0.3}, 3), ElementsAre(1, 2, 2));
  EXPECT_THAT(partition({0.1, 0.1, 0.1, 0.3}, 3), ElementsAre(1, 2, 1));
  EXPECT_THAT(partition({1e-12, 2e-12, 3e-12, 4e-12, 5e-12, 6e-12}, 2), ElementsAre(4, 2));
  EXPECT_THAT(partition({1e12, 2e12, 3e12, 4e12, 5e12, 6e12}, 2), ElementsAre(4, 2));
}

std::string refusal(const std::vector<double>& costs, int parts) {
  return testing::message_of<InvalidArgument>([&] { partition(costs, parts); });
}

TEST(Partition, P11RefusesNumbersOfPartsAndCosts) {
  EXPECT_THAT(refusal({42}, 0), HasSubstr("at least 1 part is needed: 0"));
  EXPECT_THAT(refusal({42}, -1), HasSubstr("at least 1 part is needed: -1"));
  EXPECT_THAT(refusal({1}, 2), HasSubstr("more parts than layers: 2 > 1"));
  EXPECT_THAT(refusal({}, 1), HasSubstr("more parts than layers: 1 > 0"));
  EXPECT_THAT(refusal({1, -2}, 1), HasSubstr("layer 1 must be"));
  EXPECT_THAT(refusal({std::numeric_limits<double>::quiet_NaN()}, 1), HasSubstr("layer 0 must be"));
}

double largest_block(const std::vector<double>& costs, const std::vector<int>& balance) {
  double largest = 0;
  auto first = costs.begin();
  for (const int count : balance) {
    largest = std::max(largest, std::accumulate(first, first + count, 0.0));
    first += count;
  }
  return largest;
}

// The oracle: tries every cut.
double smallest_largest_block(const std::vector<double>& costs, std::size_t first, int parts) {
  if (parts == 1) {
    return std::accumulate(costs.begin() + static_cast<std::ptrdiff_t>(first), costs.end(), 0.0);
  }
  double best = std::numeric_limits<double>::infinity(), block = 0;
  for (std::size_t end = first; end + static_cast<std::size_t>(parts) <= costs.size(); ++end) {
    block += costs[end];
    best = std::min(best, std::max(block, smallest_largest_block(costs, end + 1, parts - 1)));
  }
  return best;
}

TEST(Partition, LargestBlockIsAsSmallAsCanBe) {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    std::vector<double> costs(1 + random() % 9);
    for (double& cost : costs) cost = static_cast<double>(random() % 20);
    const int parts = 1 + static_cast<int>(random() % costs.size());
    const auto balance = partition(costs, parts);
    ASSERT_NO_THROW(check_balance(balance, costs.size(), parts));
    EXPECT_EQ(balance.size(), static_cast<std::size_t>(parts));
    EXPECT_EQ(largest_block(costs, balance), smallest_largest_block(costs, 0, parts));
  }
}

TEST(Partition, ByCountIsThatOfEqualCosts) {
  EXPECT_THAT(partition_by_count(7, 3), ElementsAre(2, 2, 3));
  for (std::size_t layers = 1; layers <= 12; ++layers) {
    for (int parts = 1; parts <= static_cast<int>(layers); ++parts) {
      EXPECT_EQ(
          partition_by_count(layers, parts), partition(std::vector<double>(layers, 0.7), parts));
    }
  }
  EXPECT_THAT(
      testing::message_of<InvalidArgument>([] { partition_by_count(2, 3); }), HasSubstr("3 > 2"));
}

TEST(Balance, P8IsRefusedWithAdviceWhereItDoesNotFit) {
  const auto refusal_of = [](const std::vector<int>& balance, std::size_t layers) {
    return testing::message_of<InvalidArgument>([&] { check_balance(balance, layers, 2); });
  };
  const auto advice = HasSubstr("balance_by_time");
  EXPECT_THAT(refusal_of({1, 2}, 4),
      AllOf(HasSubstr("balance [1, 2]: adds up to 3 layers, the model has 4"), advice));
  EXPECT_THAT(refusal_of({0, 2}, 2), AllOf(HasSubstr("one has 0"), advice));
  EXPECT_THAT(refusal_of({-1, 3}, 2), AllOf(HasSubstr("one has -1"), advice));
  EXPECT_THAT(refusal_of({}, 0), HasSubstr("there is no stage"));
  EXPECT_THAT(refusal_of({1, 1, 1}, 3), AllOf(HasSubstr("more stages than places: 3 > 2"), advice));
  EXPECT_NO_THROW(check_balance({1, 1}, 2, 2));
  EXPECT_NO_THROW(check_balance({1, 1}, 2, 3));
}

TEST(JoinToUnits, FillsUnitsAndLeavesWhatHasNothingToTheOneBefore) {
  EXPECT_THAT(join_to_units({0, 5, 0, 5, 20, 0, 1}, 10),
      ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5), ElementsAre(6)));
  EXPECT_THAT(join_to_units({0, 0}, 1), ElementsAre(ElementsAre(0, 1)));
  EXPECT_THAT(join_to_units({7, 7}, 1), ElementsAre(ElementsAre(0), ElementsAre(1)));
}

}  // namespace
}  // namespace lockstep
