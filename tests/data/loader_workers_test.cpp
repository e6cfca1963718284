#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>

#include "lockstep/core/error.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/image_samples.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/samples.h"

namespace lockstep {
namespace {

using data::BatchQueue;

// Draws from the key alone: the left half, with a number of the key's on every pixel.
class HalfAndNoise final : public data::ImageTransform {
 public:
  ImageSize output() const override { return {2, 4}; }

  Box region(ImageSize size, const data::SampleKey& key) const override {
    return {key.epoch % 2 == 0 ? 0 : size.width / 2, 0, size.width / 2, size.height};
  }

  void apply(
      const ImageView& part, const data::SampleKey& key, std::span<float> out) const override {
    std::mt19937_64 engine(
        key.seed * 1000003 + static_cast<std::uint64_t>(key.epoch * 1009 + key.index));
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<float>(part.pixels[i]) + static_cast<float>(engine() % 100) / 256;
    }
  }
};

data::InMemoryImages images() {
  return data::mock({.size = 10, .shape = {.channels = 1, .height = 4, .width = 4}, .seed = 1});
}

data::SamplesPointer transformed() {
  return std::make_shared<data::TransformedSamples>(images(), std::make_unique<HalfAndNoise>());
}

const std::vector<std::int64_t> kElevenIndices{3, 1, 4, 1, 5, 9, 2, 6, 0, 7, 8};

std::vector<Batch> walk(
    const LoaderOptions& options, data::SamplesPointer samples = transformed()) {
  std::vector<Batch> seen;
  for (auto& batch : Loader(std::move(samples), kElevenIndices, 2, options)) {
    seen.push_back({batch.input().clone(), batch.target().clone()});
  }
  return seen;
}

void expect_equal(const std::vector<Batch>& left, const std::vector<Batch>& right) {
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    EXPECT_TRUE(torch::equal(left[i].input(), right[i].input())) << i;
    EXPECT_TRUE(torch::equal(left[i].target(), right[i].target())) << i;
  }
}

bool are_equal(const std::vector<Batch>& left, const std::vector<Batch>& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(),
      [](const Batch& a, const Batch& b) { return torch::equal(a.input(), b.input()); });
}

TEST(LoaderWorkers, DoNotChangeTheBatches) {
  for (const auto dtype : {torch::kFloat, torch::kBFloat16}) {
    const auto expected = walk({.dtype = dtype, .seed = 7, .epoch = 3});
    for (const int workers : {1, 2, 5}) {
      expect_equal(walk({.dtype = dtype, .seed = 7, .epoch = 3, .workers = workers, .prefetch = 1}),
          expected);
    }
  }
}

TEST(LoaderWorkers, ReadTheRegionThatTheTransformAsksFor) {
  const auto stored = images();
  const auto left = walk({.epoch = 2})[0].input(), right = walk({.epoch = 3})[0].input();
  for (const std::int64_t y : {0, 1, 2, 3}) {
    for (const std::int64_t x : {0, 1}) {
      const std::uint8_t* row = stored.pixels(kElevenIndices[1]) + 4 * y;
      EXPECT_EQ(std::floor(left[1][0][y][x].item<float>()), row[x]);
      EXPECT_EQ(std::floor(right[1][0][y][x].item<float>()), row[2 + x]);
    }
  }
}

TEST(LoaderWorkers, SeedAndEpochChangeWhatIsDrawn) {
  const auto here = walk({.seed = 7, .epoch = 2, .workers = 2});
  EXPECT_FALSE(are_equal(here, walk({.seed = 7, .epoch = 4, .workers = 2})));
  EXPECT_FALSE(are_equal(here, walk({.seed = 8, .epoch = 2, .workers = 2})));
}

TEST(LoaderWorkers, RoundToBfloat16AsLibTorchDoes) {
  const auto floats = walk({.seed = 1});
  const auto shorts = walk({.dtype = torch::kBFloat16, .seed = 1, .workers = 1});
  for (std::size_t i = 0; i < floats.size(); ++i) {
    EXPECT_TRUE(torch::equal(floats[i].input().to(torch::kBFloat16), shorts[i].input())) << i;
    EXPECT_EQ(shorts[i].input().strides(), torch::IntArrayRef({8, 8, 2, 1}));
  }
}

TEST(LoaderWorkers, GoOnWhereAWalkWasLeft) {
  const auto expected = walk({.seed = 7, .epoch = 1});
  for (const int workers : {0, 1, 3}) {
    for (std::int64_t stop = 0; stop <= std::ssize(expected); ++stop) {
      const Loader loader(
          transformed(), kElevenIndices, 2, {.seed = 7, .epoch = 1, .workers = workers});
      auto first = loader.begin();
      while (first.position() < stop) ++first;
      const auto rest = walk(
          {.seed = 7, .epoch = 1, .first_batch = first.position(), .workers = 2 - workers / 2});
      expect_equal({expected.begin() + stop, expected.end()}, rest);
    }
  }
}

TEST(LoaderWorkers, LeaveBatchesAloneThatSomeoneHolds) {
  const auto expected = walk({.seed = 7});
  std::vector<Batch> held;
  std::vector<torch::Tensor> views;
  for (auto& batch : Loader(transformed(), kElevenIndices, 2, {.seed = 7, .workers = 2})) {
    if (held.size() % 2 == 0) views.push_back(batch.input().flatten(1));
    held.push_back(batch);
  }
  expect_equal(held, expected);
  for (std::size_t i = 0; i < views.size(); ++i) {
    EXPECT_TRUE(torch::equal(views[i], expected[2 * i].input().flatten(1))) << i;
  }
}

TEST(LoaderWorkers, UseMemoryAgain) {
  std::vector<const void*> memory;
  std::vector<std::int64_t> many;
  for (int i = 0; i < 200; ++i) many.push_back(i % 10);
  for (auto& batch : Loader(transformed(), many, 2, {.workers = 2, .prefetch = 1})) {
    memory.push_back(batch.input().data_ptr());
  }
  std::sort(memory.begin(), memory.end());
  memory.erase(std::unique(memory.begin(), memory.end()), memory.end());
  EXPECT_LE(memory.size(), 3U);
}

// A set in which sample 5 cannot be read.
class OneBad final : public data::SingleSamples {
 public:
  std::int64_t size() const override { return 10; }
  std::int64_t classes() const override { return 10; }
  data::ImageShape shape() const override { return {1, 1, 1}; }
  std::string name(std::int64_t index) const override { return concat("photo-", index, ".jpg"); }

 private:
  std::int64_t read_one(const data::SampleKey& key, std::span<float> out) const override {
    if (key.index == 5) throw DataError("jpeg: the file ends early");
    out[0] = 0;
    return key.index;
  }
};

TEST(LoaderWorkers, NameTheSampleThatIsBadWhenItsTurnComes) {
  for (const int workers : {0, 2}) {
    const Loader loader(std::make_shared<OneBad>(), kElevenIndices, 2, {.workers = workers});
    auto batch = loader.begin();
    ++batch;
    EXPECT_EQ(batch->target()[0].item<std::int64_t>(), 4);
    try {
      ++batch;
      FAIL() << "the third batch has sample 5";
    } catch (const DataError& error) {
      EXPECT_STREQ(error.what(), "loader: photo-5.jpg: jpeg: the file ends early");
    }
  }
}

// Draws all channels of a pixel together, as every transform does.
class Colours final : public data::SingleSamples {
 public:
  std::int64_t size() const override { return 10; }
  std::int64_t classes() const override { return 10; }
  data::ImageShape shape() const override { return {.channels = 3, .height = 2, .width = 5}; }
  std::string name(std::int64_t index) const override { return concat("colours ", index); }

 private:
  std::int64_t read_one(const data::SampleKey& key, std::span<float> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<float>(key.index * 100 + static_cast<std::int64_t>(i));
    return key.index;
  }
};

TEST(LoaderWorkers, GiveTheSameImagesInEitherLayout) {
  for (const auto type : {torch::kFloat, torch::kBFloat16}) {
    for (const int workers : {0, 2}) {
      const auto set = std::make_shared<Colours>();
      const auto planes = walk({.dtype = type, .workers = workers}, set);
      expect_equal(planes, walk({.dtype = type, .workers = workers, .channels_last = true}, set));
      // Sample 3, channel 2, row 1, column 4: the last number drawn.
      EXPECT_EQ(planes[0].input()[0][2][1][4].item<float>(),
          torch::full({1}, 329.0).to(type).item<float>());
      EXPECT_TRUE(planes[0].input().is_contiguous());
    }
  }
}

TEST(LoaderWorkers, AreLeftInTheMiddleOfAnEpoch) {
  for (int i = 0; i < 20; ++i) {
    for (auto& batch : Loader(transformed(), kElevenIndices, 2, {.workers = 3})) {
      if (!batch.is_empty()) break;
    }
  }
}

TEST(SampleSubset, IsASetOfItsOwn) {
  const auto part =
      std::make_shared<data::SampleSubset>(transformed(), std::vector<std::int64_t>{8, 2, 5});
  EXPECT_EQ(part->size(), 3);
  EXPECT_EQ(part->name(1), transformed()->name(2));
  const auto batches = [](data::SamplesPointer set, std::vector<std::int64_t> indices) {
    const Loader loader(std::move(set), std::move(indices), 3, {.seed = 1});
    return loader.begin()->input().clone();
  };
  EXPECT_TRUE(torch::equal(batches(part, {2, 0}), batches(transformed(), {5, 8})));
  EXPECT_THROW(batches(part, {3}), InvalidArgument);
  EXPECT_THROW(data::SampleSubset(transformed(), {10}), InvalidArgument);
  EXPECT_THROW(data::SampleSubset(transformed(), {}), InvalidArgument);
}

TEST(RepeatedSamples, DrawAnewEachTime) {
  const auto longer = std::make_shared<data::RepeatedSamples>(transformed(), 3);
  EXPECT_EQ(longer->size(), 30);
  const auto first = [](data::SamplesPointer set, std::int64_t index, std::int64_t epoch) {
    return Loader(std::move(set), {index}, 1, {.seed = 1, .epoch = epoch}).begin()->input().clone();
  };
  EXPECT_TRUE(torch::equal(first(longer, 24, 1), first(transformed(), 4, 5)));
  EXPECT_FALSE(torch::equal(first(longer, 24, 1), first(longer, 4, 1)));
  EXPECT_EQ(longer->name(24), transformed()->name(4));
  EXPECT_THROW(first(longer, 30, 0), InvalidArgument);
  EXPECT_THROW(data::RepeatedSamples(transformed(), 0), InvalidArgument);
}

Batch numbered(std::int64_t number) { return {torch::full({1}, number), torch::full({1}, number)}; }

void expect_numbers(BatchQueue& queue, std::int64_t first, std::int64_t end) {
  Batch batch;
  for (std::int64_t number = first; number < end; ++number) {
    queue.next(batch);
    EXPECT_EQ(batch.target().item<std::int64_t>(), number);
  }
}

// The first of each pair is the slow one, so that workers overtake each other.
void prepare_unevenly(Batch& batch, std::int64_t number) {
  if (number % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  batch = numbered(number);
}

TEST(BatchQueue, HandsOutInOrderWhoeverPrepares) {
  for (const int workers : {1, 2, 5}) {
    for (const std::int64_t ahead : {1, 2, 7}) {
      BatchQueue queue(
          prepare_unevenly, {.first = 3, .end = 20, .workers = workers, .ahead = ahead});
      expect_numbers(queue, 3, 20);
    }
  }
}

TEST(BatchQueue, PreparesNoMoreThanItMay) {
  std::atomic<std::int64_t> begun = 0, taken = 0;
  std::atomic<bool> within = true;
  {
    BatchQueue queue(
        [&](Batch& batch, std::int64_t number) {
          if (++begun > taken + 3) within = false;
          batch = numbered(number);
        },
        {.end = 100, .workers = 4, .ahead = 3});
    Batch batch;
    for (int i = 0; i < 10; ++i) {
      ++taken;  // Before the call: the slot is free from within it.
      queue.next(batch);
    }
    while (begun < 13) std::this_thread::yield();
  }
  EXPECT_TRUE(within);
  EXPECT_EQ(begun, 13);
}

TEST(BatchQueue, ThrowsWhatAPreparationThrewWhenItsTurnComes) {
  BatchQueue queue(
      [](Batch& batch, std::int64_t number) {
        if (number == 2) throw std::out_of_range("the third");
        batch = numbered(number);
      },
      {.end = 8, .workers = 2, .ahead = 2});
  expect_numbers(queue, 0, 2);
  Batch batch;
  EXPECT_THROW(queue.next(batch), std::out_of_range);
  expect_numbers(queue, 3, 8);
  EXPECT_THROW(queue.next(batch), InvalidArgument);
  EXPECT_THROW(BatchQueue(prepare_unevenly, {.end = 1, .workers = 0}), InvalidArgument);
}

TEST(BatchQueue, UsesTheMemoryThatComesBack) {
  std::mutex mutex;
  std::set<const void*> memory;
  BatchQueue queue(
      [&](Batch& batch, std::int64_t number) {
        if (batch.is_empty()) batch = numbered(number);
        batch.target().fill_(number);
        const std::lock_guard lock(mutex);
        memory.insert(batch.target().data_ptr());
      },
      {.end = 50, .workers = 2, .ahead = 4});
  expect_numbers(queue, 0, 50);
  // One for each slot, and the one that the caller holds.
  EXPECT_LE(memory.size(), 5U);
}

TEST(BatchQueue, EndsWithBatchesLeftAndWorkersWaiting) {
  std::atomic<int> inside = 0;
  for (int i = 0; i < 20; ++i) {
    BatchQueue queue(
        [&](Batch& batch, std::int64_t number) {
          ++inside;
          prepare_unevenly(batch, number);
          --inside;
        },
        {.end = 1000, .workers = 3, .ahead = 6});
    if (i % 2 == 0) expect_numbers(queue, 0, 2);
  }
  EXPECT_EQ(inside, 0);
}

}  // namespace
}  // namespace lockstep
