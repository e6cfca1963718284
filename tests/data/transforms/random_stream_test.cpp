#include "lockstep/data/transforms/random_stream.h"

#include <array>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numbers>
#include <set>
#include <thread>
#include <vector>

#include "lockstep/core/error.h"

namespace lockstep::data {
namespace {

using ::testing::ElementsAre;

constexpr SampleKey kKey{.seed = 42, .epoch = 3, .index = 1000};

std::vector<std::uint32_t> first_bits(const SampleKey& key, Draw draw = Draw::kCrop) {
  RandomStream stream(key, draw);
  std::vector<std::uint32_t> bits(9);
  for (auto& word : bits) word = stream.bits();
  return bits;
}

// The known answers of Random123, Salmon's own library.
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_THAT(
      philox({0, 0, 0, 0}, {0, 0}), ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_THAT(philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
      ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(RandomStream, DependsOnKeyAndPartAlone) {
  const auto expected = first_bits(kKey);
  std::vector<std::uint32_t> elsewhere;
  std::thread([&] {
    first_bits({7, 7, 7});
    elsewhere = first_bits(kKey);
  }).join();
  EXPECT_EQ(elsewhere, expected);
}

TEST(RandomStream, DiffersWithEveryPartOfItsKey) {
  std::set<std::vector<std::uint32_t>> all;
  for (const std::uint64_t seed : {42ULL, 43ULL, 42ULL + (1ULL << 40)}) {
    for (const std::int64_t epoch : {3LL, 4LL, 3LL + (1LL << 40)}) {
      for (const std::int64_t index : {1000LL, 1001LL, 1000LL + (1LL << 40)}) {
        for (const Draw draw : {Draw::kCrop, Draw::kFlip, Draw::kColour, Draw::kErasing}) {
          all.insert(first_bits({seed, epoch, index}, draw));
        }
      }
    }
  }
  EXPECT_EQ(all.size(), 108U);
}

struct Moments {
  double mean = 0;
  double variance = 0;
  double fourth = 0;  // of the distances from the mean
};

Moments moments(const std::vector<double>& values) {
  Moments all;
  const auto count = static_cast<double>(values.size());
  for (const double value : values) all.mean += value / count;
  for (const double value : values) {
    all.variance += std::pow(value - all.mean, 2) / count;
    all.fourth += std::pow(value - all.mean, 4) / count;
  }
  return all;
}

template <typename Drawn>
std::vector<double> drawn(const Drawn& draw, int count = 100'000) {
  RandomStream stream(kKey, Draw::kColour);
  std::vector<double> values;
  for (int i = 0; i < count; ++i) values.push_back(static_cast<double>(draw(stream)));
  return values;
}

TEST(RandomStream, IsUniform) {
  const auto values = drawn([](RandomStream& stream) { return stream.uniform(); });
  EXPECT_THAT(values, ::testing::Each(::testing::AllOf(::testing::Ge(0), ::testing::Lt(1))));
  EXPECT_NEAR(moments(values).mean, 0.5, 0.004);
  EXPECT_NEAR(moments(values).variance, 1. / 12, 0.001);
  const auto scaled = drawn([](RandomStream& stream) { return stream.uniform(-2, 4); });
  EXPECT_NEAR(scaled.front(), 6 * values.front() - 2, 1e-12);
}

TEST(RandomStream, DrawsWholeNumbersEvenlyBothEndsIncluded) {
  std::vector<int> counts(7);
  for (const double value : drawn([](RandomStream& stream) { return stream.integer(-3, 3); }))
    ++counts.at(static_cast<std::size_t>(value + 3));
  for (const int count : counts) EXPECT_NEAR(count, 100'000 / 7., 500);
  RandomStream stream(kKey, Draw::kCrop);
  EXPECT_EQ(stream.integer(5, 5), 5);
  const std::int64_t most = (std::int64_t{1} << 32) - 1;
  EXPECT_LE(stream.integer(0, most), most);
  EXPECT_THROW(stream.integer(1, 0), InvalidArgument);
  EXPECT_THROW(stream.integer(0, most + 1), InvalidArgument);
}

// 3 * 2^30 values of 2^32 words: without rejection a third would be twice as likely.
TEST(RandomStream, DrawsLargeWholeNumbersEvenly) {
  const std::int64_t third = std::int64_t{1} << 30;
  std::vector<int> counts(3);
  const auto values = drawn([&](RandomStream& stream) { return stream.integer(0, 3 * third - 1); });
  int divisible = 0;
  for (const double value : values) {
    ++counts.at(static_cast<std::size_t>(value) / static_cast<std::size_t>(third));
    divisible += static_cast<std::int64_t>(value) % 3 == 0;
  }
  for (const int count : counts) EXPECT_NEAR(count, 100'000 / 3., 800);
  EXPECT_NEAR(divisible, 100'000 / 3., 800);
}

TEST(RandomStream, DrawsNormalNumbers) {
  const auto values = drawn([](RandomStream& stream) { return stream.normal(9, 0.5); });
  EXPECT_NEAR(moments(values).mean, 9, 0.007);
  EXPECT_NEAR(moments(values).variance, 0.25, 0.005);
  EXPECT_NEAR(moments(values).fourth, 3 * 0.25 * 0.25, 0.01);
}

TEST(RandomStream, FillsWithNormalNumbers) {
  RandomStream stream(kKey, Draw::kErasing);
  std::vector<float> numbers(100'001, 99);
  stream.fill_normal(numbers);
  EXPECT_LT(std::abs(numbers.back()), 6);
  const Moments all = moments({numbers.begin(), numbers.end()});
  EXPECT_NEAR(all.mean, 0, 0.014);
  EXPECT_NEAR(all.variance, 1, 0.02);
  EXPECT_NEAR(all.fourth, 3, 0.15);
  double products = 0;
  for (std::size_t i = 1; i < numbers.size(); ++i) products += numbers[i] * numbers[i - 1];
  EXPECT_NEAR(products / 1e5, 0, 0.014);
}

// By the C library in doubles, of the same words.
std::vector<double> box_muller(const std::array<std::uint32_t, 4>& words) {
  std::vector<double> numbers;
  for (const std::size_t at : {0U, 2U}) {
    const auto even = [&](std::size_t i) {
      return double{(static_cast<float>(words[i] >> 8) + 0.5F) * 0x1p-24F};
    };
    const double radius = std::sqrt(-2 * std::log(even(at)));
    const double angle = 2 * std::numbers::pi * even(at + 1);
    numbers.push_back(radius * std::cos(angle));
    numbers.push_back(radius * std::sin(angle));
  }
  return numbers;
}

// Over the carry from the counter's first word, too.
TEST(NormalNumbers, AreThoseOfTheWordsThatFollow) {
  constexpr std::array<std::uint32_t, 2> kWords{17, 0xfffffff0};
  for (std::uint32_t start = 0xffff0000; start != 0x10000; start += kNormalBlocks) {
    std::array<std::uint32_t, 4> counter{start, start < 0x80000000 ? 1U : 0U, 5, 6};
    const NormalNumbers numbers = normal_numbers(counter, kWords);
    ASSERT_EQ(numbers, plain_normal_numbers(counter, kWords));
    for (std::size_t block = 0; block < kNormalBlocks; ++block, ++counter[0]) {
      const auto expected = box_muller(philox(counter, kWords));
      for (std::size_t i = 0; i < 4; ++i)
        ASSERT_NEAR(numbers[4 * block + i], expected[i], 1e-6) << start;
    }
  }
}

TEST(NormalNumbers, CarryIntoTheCountersSecondWord) {
  const NormalNumbers over = normal_numbers({0xfffffffc, 7, 5, 6}, {1, 2});
  const NormalNumbers after = normal_numbers({0, 8, 5, 6}, {1, 2});
  for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(over[16 + i], after[i]);
}

TEST(RandomStream, FillsOnWithNewNumbers) {
  RandomStream at_once(kKey, Draw::kErasing), in_parts(kKey, Draw::kErasing);
  std::vector<float> whole(200), parts(200);
  at_once.fill_normal(whole);
  in_parts.fill_normal({parts.data(), 132});
  in_parts.fill_normal({parts.data() + 132, 3});
  in_parts.fill_normal({parts.data() + 136, 64});
  parts[135] = whole[135];
  EXPECT_EQ(parts, whole);
  EXPECT_EQ(at_once.bits(), in_parts.bits());
}

}  // namespace
}  // namespace lockstep::data
