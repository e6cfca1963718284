#include "lockstep/core/best_fit.h"

#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <random>
#include <stdexcept>
#include <utility>

namespace lockstep {
namespace {

TEST(BestFit, GivesPartsOneBehindTheOtherUntilTheLimit) {
  BestFit parts(100);
  EXPECT_EQ(parts.take(60), 0U);
  EXPECT_EQ(parts.take(40), 60U);
  EXPECT_EQ(parts.take(1), std::nullopt);
  EXPECT_EQ(parts.in_use(), 100U);
}

TEST(BestFit, TakesTheSmallestGapThatHasRoom) {
  BestFit parts(1000);
  for (const std::size_t size : {50U, 1U, 20U, 1U, 30U, 1U}) parts.take(size);
  for (const std::size_t start : {0U, 51U, 72U}) parts.give_back(start);
  EXPECT_EQ(parts.take(25), 72U);
  EXPECT_EQ(parts.take(20), 51U);
  EXPECT_EQ(parts.take(5), 97U) << "what the first one left";
}

TEST(BestFit, NeighbouringGapsBecomeOne) {
  BestFit parts(1000);
  for (int i = 0; i < 4; ++i) parts.take(10);
  for (const std::size_t start : {0U, 20U, 10U}) parts.give_back(start);
  EXPECT_EQ(parts.gaps().size(), 1U);
  EXPECT_EQ(parts.take(30), 0U);
}

TEST(BestFit, AGapAtTheEndIsNone) {
  BestFit parts(1000);
  for (int i = 0; i < 3; ++i) parts.take(10);
  parts.give_back(10);
  parts.give_back(20);
  EXPECT_EQ(parts.end(), 10U);
  EXPECT_TRUE(parts.gaps().empty());
}

TEST(BestFit, RefusesWhatItDidNotGive) {
  BestFit parts(1000);
  parts.take(10);
  EXPECT_THROW(parts.give_back(5), std::out_of_range);
  parts.give_back(0);
  EXPECT_THROW(parts.give_back(0), std::out_of_range);
}

// Parts never overlap, and with the gaps between them they make up all that is below the end.
TEST(BestFit, AccountsForEveryAddressOverDrawnCalls) {
  std::mt19937 random(7);
  BestFit parts(100'000);
  std::map<std::size_t, std::size_t> held;
  for (int call = 0; call < 20'000; ++call) {
    if (random() % 2 == 0 || held.empty()) {
      const std::size_t size = 1 + random() % 500;
      if (const auto start = parts.take(size)) held[*start] = size;
    } else {
      const auto chosen = std::next(held.begin(), static_cast<long>(random() % held.size()));
      parts.give_back(chosen->first);
      held.erase(chosen);
    }
    auto all = parts.gaps();
    all.insert(held.begin(), held.end());
    ASSERT_EQ(all.size(), parts.gaps().size() + held.size());
    std::size_t at = 0;
    for (const auto& [start, size] : all) ASSERT_EQ(std::exchange(at, start + size), start);
    ASSERT_EQ(at, parts.end());
  }
}

}  // namespace
}  // namespace lockstep
