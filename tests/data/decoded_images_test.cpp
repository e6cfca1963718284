#include "lockstep/data/decoded_images.h"

#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "lockstep/core/error.h"

namespace lockstep::data {
namespace {

constexpr std::int64_t kPixels = 4 * 2 * 3;
constexpr std::int64_t kEach = kPixels + DecodedImages::kBytesBesidePixels;

Image flat(std::uint8_t level) { return {{4, 2}, 3, std::vector<std::uint8_t>(kPixels, level)}; }

DecodedImages::Pointer keep(DecodedImages& images, std::int64_t index) {
  return images.keep(index, {4, 2}, [&] { return flat(static_cast<std::uint8_t>(index)); });
}

TEST(DecodedImages, AreKeptWhileThereIsRoom) {
  const auto budget = std::make_shared<MemoryBudget>(2 * kEach + kEach / 2);
  DecodedImages images(budget);
  EXPECT_EQ(images.kept(5), nullptr);
  EXPECT_EQ(keep(images, 5)->pixels, flat(5).pixels);
  EXPECT_EQ(keep(images, 6)->pixels, flat(6).pixels);
  EXPECT_EQ(keep(images, 7), nullptr);
  EXPECT_EQ(budget->left(), kEach / 2);
  EXPECT_EQ(images.kept(5)->pixels, flat(5).pixels);
  EXPECT_EQ(images.kept(6)->pixels, flat(6).pixels);
  EXPECT_EQ(images.kept(7), nullptr);
}

TEST(DecodedImages, OfSeveralSetsShareABudget) {
  const auto budget = std::make_shared<MemoryBudget>(kEach);
  DecodedImages first(budget), second(budget);
  EXPECT_NE(keep(first, 0), nullptr);
  EXPECT_EQ(keep(second, 0), nullptr);
  DecodedImages too_large(std::make_shared<MemoryBudget>(kEach - 1));
  EXPECT_EQ(keep(too_large, 0), nullptr);
}

TEST(DecodedImages, ThatCannotBeDecodedTakeNoRoom) {
  const auto budget = std::make_shared<MemoryBudget>(kEach);
  DecodedImages images(budget);
  const auto fail = []() -> Image { throw DataError("damaged"); };
  EXPECT_EQ(images.keep(1, {4, 2}, fail), nullptr);
  EXPECT_EQ(images.kept(1), nullptr);
  const auto interrupt = []() -> Image { throw std::bad_alloc(); };
  EXPECT_THROW(images.keep(1, {4, 2}, interrupt), std::bad_alloc);
  EXPECT_EQ(budget->left(), kEach);
}

// The one that comes second is a guest: it is used, but counts no more.
TEST(DecodedImages, CountOnceHoweverManyThreadsDecodeThem) {
  const auto budget = std::make_shared<MemoryBudget>(100 * kEach);
  DecodedImages images(budget);
  const auto keep_within = [&] {
    keep(images, 3);
    return flat(3);
  };
  EXPECT_EQ(images.keep(3, {4, 2}, keep_within)->pixels, flat(3).pixels);
  EXPECT_EQ(budget->left(), 99 * kEach);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (std::int64_t index = 10; index < 30; ++index) keep(images, index);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(budget->left(), 79 * kEach);
}

}  // namespace
}  // namespace lockstep::data
