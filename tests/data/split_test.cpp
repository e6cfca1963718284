#include "lockstep/data/split.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <numeric>
#include <set>

#include "lockstep/core/error.h"

namespace lockstep::data {
namespace {

using Parts = std::vector<std::vector<std::int64_t>>;

void expect_each_index_once(const Parts& parts, std::int64_t size) {
  std::vector<std::int64_t> all;
  for (const auto& part : parts) {
    EXPECT_TRUE(std::is_sorted(part.begin(), part.end()));
    all.insert(all.end(), part.begin(), part.end());
  }
  std::sort(all.begin(), all.end());
  std::vector<std::int64_t> expected(static_cast<std::size_t>(size));
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(all, expected);
}

TEST(Split, GivesEachIndexToOnePart) {
  for (const std::int64_t size : {0, 1, 2, 3, 7, 10, 100, 1001}) {
    for (const auto& fractions :
        std::vector<std::vector<double>>{{1}, {0.5, 0.5}, {0.8, 0.1, 0.1}, {0.99, 0.01}}) {
      const auto parts = split_by_seed(size, fractions, 7);
      ASSERT_EQ(parts.size(), fractions.size());
      expect_each_index_once(parts, size);
      for (std::size_t part = 0; part < parts.size(); ++part) {
        const double share = fractions[part] * static_cast<double>(size);
        EXPECT_NEAR(static_cast<double>(parts[part].size()), share, 1) << size;
      }
    }
  }
}

TEST(Split, RoundsItsBounds) {
  const auto parts = split_by_seed(10, {0.75, 0.25}, 1);
  EXPECT_EQ(parts[0].size(), 8U);
  EXPECT_EQ(split_by_seed(1000, {0.8, 0.1, 0.1}, 1)[1].size(), 100U);
}

// Whoever changes these numbers changes everybody's split.
TEST(Split, IsTheSameOnEveryMachine) {
  EXPECT_EQ(split_by_seed(12, {0.5, 0.25, 0.25}, 42),
      (Parts{{1, 2, 3, 4, 7, 9}, {5, 8, 11}, {0, 6, 10}}));
}

TEST(Split, DependsOnTheSeed) {
  std::set<Parts> different;
  for (std::uint64_t seed = 0; seed < 50; ++seed)
    different.insert(split_by_seed(30, {0.5, 0.5}, seed));
  EXPECT_EQ(different.size(), 50U);
}

TEST(Split, PutsEachIndexInEachPartEquallyOften) {
  std::vector<int> count(5, 0);
  constexpr int kSeeds = 2000;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto parts = split_by_seed(5, {0.4, 0.6}, seed);
    for (const auto index : parts[0]) ++count[static_cast<std::size_t>(index)];
  }
  // 0.4 of 2000 is 800, the standard deviation 22.
  for (const int times : count) EXPECT_NEAR(times, 800, 110);
}

TEST(Split, WithinClassesKeepsTheirShares) {
  std::vector<std::int64_t> labels;
  for (int i = 0; i < 1000; ++i) labels.push_back(i % 10 == 0 ? 5 : i % 3);
  const auto parts = stratified_split_by_seed(labels, {0.7, 0.2, 0.1}, 3);
  expect_each_index_once(parts, 1000);
  for (const std::int64_t label : {0, 1, 2, 5}) {
    const auto whole = static_cast<double>(std::count(labels.begin(), labels.end(), label));
    const auto in_part = [&](std::size_t part) {
      return static_cast<double>(std::count_if(parts[part].begin(), parts[part].end(),
          [&](auto index) { return labels[static_cast<std::size_t>(index)] == label; }));
    };
    EXPECT_NEAR(in_part(0), 0.7 * whole, 1) << label;
    EXPECT_NEAR(in_part(1), 0.2 * whole, 1) << label;
    EXPECT_NEAR(in_part(2), 0.1 * whole, 1) << label;
  }
}

std::int64_t held_out(std::int64_t classes, std::int64_t of_each, double share) {
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < classes * of_each; ++i) labels.push_back(i % classes);
  return std::ssize(stratified_split_by_seed(labels, {1 - share, share}, 42)[1]);
}

// Each class rounded by itself would lose up to half a sample, all in the same direction.
TEST(Split, WithinClassesKeepsTheWholeShare) {
  EXPECT_EQ(held_out(40, 14, 0.1), 56);
  EXPECT_EQ(held_out(40, 4, 0.1), 16);
  EXPECT_EQ(held_out(40, 5, 0.1), 20);
  EXPECT_EQ(held_out(1000, 16, 0.1), 1600);
  EXPECT_EQ(held_out(10, 5000, 0.1), 5000);
}

TEST(Split, WithinClassesGivesWhatIsLeftToTheLargestRemainders) {
  std::vector<std::int64_t> labels(49, 0);  // shares of 4.9, 1.4 and 0.7
  labels.insert(labels.end(), 14, 1);
  labels.insert(labels.end(), 7, 2);
  const auto parts = stratified_split_by_seed(labels, {0.9, 0.1}, 1);
  std::map<std::int64_t, int> held;
  for (const std::int64_t index : parts[1]) ++held[labels[static_cast<std::size_t>(index)]];
  EXPECT_EQ(held, (std::map<std::int64_t, int>{{0, 5}, {1, 1}, {2, 1}}));
}

TEST(Split, WithinSmallClassesIsByChanceWhichAreHeldOut) {
  std::vector<std::int64_t> labels;
  for (std::int64_t label = 0; label < 10; ++label) labels.insert(labels.end(), 4, label);
  std::set<std::int64_t> held;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const auto parts = stratified_split_by_seed(labels, {0.9, 0.1}, seed);
    for (const std::int64_t index : parts[1]) held.insert(labels[static_cast<std::size_t>(index)]);
  }
  EXPECT_EQ(held.size(), 10U);
}

TEST(Split, WithinClassesGivesEachIndexToOneOfManyParts) {
  for (std::int64_t classes = 1; classes < 30; ++classes) {
    std::vector<std::int64_t> labels;
    for (std::int64_t label = 0; label < classes; ++label)
      labels.insert(labels.end(), static_cast<std::size_t>(1 + label * 7 % 11), label);
    const auto size = std::ssize(labels);
    const auto parts = stratified_split_by_seed(labels, {0.5, 0.2, 0.2, 0.1}, 5);
    expect_each_index_once(parts, size);
    EXPECT_EQ(std::ssize(parts[0]), std::llround(0.5 * static_cast<double>(size)));
  }
}

TEST(Split, WithinClassesIsByChance) {
  const std::vector<std::int64_t> labels(40, 1);
  EXPECT_NE(stratified_split_by_seed(labels, {0.5, 0.5}, 1),
      stratified_split_by_seed(labels, {0.5, 0.5}, 2));
  EXPECT_EQ(stratified_split_by_seed(labels, {0.5, 0.5}, 1),
      stratified_split_by_seed(labels, {0.5, 0.5}, 1));
  EXPECT_EQ(stratified_split_by_seed({}, {0.5, 0.5}, 1), (Parts{{}, {}}));
}

TEST(Split, RefusesWrongArguments) {
  for (const auto& fractions : std::vector<std::vector<double>>{
           {}, {0.5}, {0.5, 0.6}, {1, 0}, {1.5, -0.5}, {std::nan(""), 1}}) {
    EXPECT_THROW(split_by_seed(10, fractions, 1), InvalidArgument);
    EXPECT_THROW(stratified_split_by_seed({}, fractions, 1), InvalidArgument);
  }
  EXPECT_THROW(split_by_seed(-1, {1}, 1), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::data
