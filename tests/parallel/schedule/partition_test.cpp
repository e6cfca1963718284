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

TEST(Partition, P11OneToSixInTwo) {
  EXPECT_THAT(partition({1, 2, 3, 4, 5, 6}, 2), ElementsAre(4, 2));
  EXPECT_THAT(partition({6, 5, 4, 3, 2, 1}, 2), ElementsAre(2, 4));
}

TEST(Partition, P11NoCostInTwo) { EXPECT_THAT(partition({0, 0}, 2), ElementsAre(1, 1)); }

TEST(Partition, P11NoPartsOrMorePartsThanItems) {
  EXPECT_THAT(testing::message_of<InvalidArgument>([] { partition({42}, 0); }),
      HasSubstr("at least 1 part is needed: 0"));
  EXPECT_THAT(testing::message_of<InvalidArgument>([] { partition({42}, -1); }),
      HasSubstr("at least 1 part is needed: -1"));
  EXPECT_THAT(testing::message_of<InvalidArgument>([] { partition({1}, 2); }),
      HasSubstr("more parts than layers: 2 > 1"));
  EXPECT_THAT(testing::message_of<InvalidArgument>([] { partition({}, 1); }),
      HasSubstr("more parts than layers: 1 > 0"));
}

TEST(Partition, OnePartTakesAll) { EXPECT_THAT(partition({3, 1, 2}, 1), ElementsAre(3)); }

// 7 in the middle bounds every cut; the rest is spread evenly, not all at one end.
TEST(Partition, TiesGoToTheMostEvenCut) {
  EXPECT_THAT(partition({1, 1, 1, 1, 7}, 3), ElementsAre(2, 2, 1));
  EXPECT_THAT(partition({10, 4, 1, 1, 1, 1}, 3), ElementsAre(1, 1, 4));
}

TEST(Partition, TiesThenGoToEvenCounts) {
  EXPECT_THAT(partition({0, 0, 0, 0, 0}, 2), ElementsAre(2, 3));
  EXPECT_THAT(partition({5, 0, 0, 5}, 2), ElementsAre(2, 2));
}

TEST(Partition, TiesThenGoToShorterFirstBlocks) {
  EXPECT_THAT(partition({5, 0, 5}, 2), ElementsAre(1, 2));
  EXPECT_THAT(partition({0.1, 0.1, 0.1, 0.1, 0.1}, 2), ElementsAre(2, 3));
  EXPECT_THAT(partition({3e-9, 3e-9, 3e-9, 3e-9, 3e-9, 3e-9, 3e-9}, 4), ElementsAre(1, 2, 2, 2));
}

TEST(Partition, RoundingBreaksNoTie) {
  EXPECT_THAT(partition({0.3, 0.3, 0.1, 0.3, 0.3}, 3), ElementsAre(1, 2, 2));
  EXPECT_THAT(partition({0.1, 0.1, 0.1, 0.3}, 3), ElementsAre(1, 2, 1));
}

TEST(Partition, TheUnitOfCostsDoesNotMatter) {
  EXPECT_THAT(partition({1e-12, 2e-12, 3e-12, 4e-12, 5e-12, 6e-12}, 2), ElementsAre(4, 2));
  EXPECT_THAT(partition({1e12, 2e12, 3e12, 4e12, 5e12, 6e12}, 2), ElementsAre(4, 2));
}

TEST(Partition, CostsThatAreNoneAreRefused) {
  EXPECT_THAT(testing::message_of<InvalidArgument>([] {
    partition({1, -2}, 1);
  }),
      HasSubstr("layer 1 must be"));
  EXPECT_THAT(testing::message_of<InvalidArgument>(
                  [] { partition({std::numeric_limits<double>::quiet_NaN()}, 1); }),
      HasSubstr("layer 0 must be"));
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

TEST(Balance, P8SumIsNotTheLayers) {
  EXPECT_THAT(testing::message_of<InvalidArgument>([] {
    check_balance({1, 2}, 4, 2);
  }),
      AllOf(HasSubstr("balance [1, 2]: adds up to 3 layers, the model has 4"),
          HasSubstr("balance_by_time")));
}

TEST(Balance, P8EntryBelowOne) {
  for (const int entry : {0, -1}) {
    EXPECT_THAT(testing::message_of<InvalidArgument>([&] {
      check_balance({entry, 2 - entry}, 2, 2);
    }),
        AllOf(HasSubstr(concat("one has ", entry)), HasSubstr("balance_by_time")));
  }
  EXPECT_THAT(testing::message_of<InvalidArgument>([] { check_balance({}, 0, 2); }),
      HasSubstr("there is no stage"));
}

TEST(Balance, P8MoreStagesThanPlaces) {
  EXPECT_THAT(testing::message_of<InvalidArgument>([] {
    check_balance({1, 1, 1}, 3, 2);
  }),
      AllOf(HasSubstr("more stages than places: 3 > 2"), HasSubstr("balance_by_time")));
  EXPECT_NO_THROW(check_balance({1, 1}, 2, 2));
  EXPECT_NO_THROW(check_balance({1, 1}, 2, 3));
}

}  // namespace
}  // namespace lockstep
