#include "lockstep/train/input/noise_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/data/loader.h"
#include "lockstep/train/input/datasets.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TrainOptions options_of(const std::string& kind) {
  TrainOptions options;
  options.model = "resnet18";
  options.data = {"mock", kind};
  options.loading.image_size = 8;
  options.classes = 1000;
  return options;
}

std::vector<Batch> batches_of(const std::string& kind, const std::vector<std::int64_t>& indices,
    const LoaderOptions& options = {}) {
  std::vector<Batch> batches;
  for (auto& batch : Loader(load_datasets(options_of(kind)).train, indices, 3, options))
    batches.push_back(batch);
  return batches;
}

TEST(NoiseSamples, OfAConstantSetAreOneBatchWhateverWasDrawn) {
  const auto batches = batches_of("constant", {5, 1, 9, 2, 200, 7, 8});
  ASSERT_EQ(batches.size(), 3U);
  EXPECT_EQ(batches[0].input().sizes(), torch::IntArrayRef({3, 3, 8, 8}));
  EXPECT_TRUE(batches[1].input().is_same(batches[0].input()));  // not made again
  EXPECT_TRUE(torch::equal(batches[2].input(), batches[0].input().narrow(0, 0, 1)));
  EXPECT_FALSE(torch::equal(batches[0].input()[0], batches[0].input()[1]));
  for (const Batch& batch : batches) EXPECT_EQ(batch.target().abs().sum().item<int>(), 0);
}

TEST(NoiseSamples, OfAConstantSetAreTheSameAfterAResumeAndWithWorkers) {
  const std::vector<std::int64_t> indices{0, 1, 2, 3, 4, 5};
  const Batch all = batches_of("constant", indices).back();
  for (const LoaderOptions& options :
      {LoaderOptions{.first_batch = 1}, LoaderOptions{.epoch = 7, .workers = 2}}) {
    EXPECT_TRUE(torch::equal(batches_of("constant", indices, options).back().input(), all.input()));
  }
}

TEST(NoiseSamples, OfAFreshSetAreOthersInEveryPlaceAndEpoch) {
  const std::vector<std::int64_t> indices{0, 1, 2, 3, 4, 5};
  const auto first = batches_of("fresh", indices), again = batches_of("fresh", indices);
  const auto later = batches_of("fresh", indices, {.epoch = 1});
  EXPECT_TRUE(torch::equal(first[1].input(), again[1].input()));
  EXPECT_TRUE(torch::equal(first[1].target(), again[1].target()));
  EXPECT_FALSE(torch::equal(first[0].input(), first[1].input()));
  EXPECT_FALSE(torch::equal(first[1].input(), later[1].input()));
  EXPECT_FALSE(torch::equal(first[1].target(), later[1].target()));
}

TEST(NoiseSamples, HaveMeanZeroVarianceOneAndEveryClass) {
  const NoiseSamples noise({.size = 400, .classes = 4, .shape = {3, 8, 9}});
  std::vector<std::int64_t> indices(400), counts(4);
  for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<std::int64_t>(i);
  const Loader loader(std::make_shared<NoiseSamples>(noise), indices, 400);
  const Batch batch = *loader.begin();
  EXPECT_NEAR(batch.input().mean().item<double>(), 0, 0.01);  // 3 standard errors
  EXPECT_NEAR(batch.input().var().item<double>(), 1, 0.01);
  EXPECT_NEAR((batch.input() * batch.input().roll(1)).mean().item<double>(), 0, 0.015);
  for (int i = 0; i < 400; ++i)
    ++counts.at(static_cast<std::size_t>(batch.target()[i].item<std::int64_t>()));
  for (const std::int64_t count : counts) EXPECT_NEAR(static_cast<double>(count), 100, 40);
}

TEST(NoiseSamples, OfFewerPixelsThanAWordHaveThemAll) {
  const NoiseSamples noise({.size = 2, .shape = {1, 1, 3}});
  const Loader loader(std::make_shared<NoiseSamples>(noise), {0, 1}, 2);
  EXPECT_EQ((*loader.begin()).input().count_nonzero().item<int>(), 6);
}

TEST(NoiseSamples, AreRefusedWithWhatTheyHaveNot) {
  const auto refusal = [](const TrainOptions& options) {
    return testing::message_of<InvalidArgument>([&] { load_datasets(options); });
  };
  EXPECT_THAT(refusal(options_of("/some/folder")),
      HasSubstr("there are mock, mock:constant and mock:fresh, not mock:/some/folder"));
  TrainOptions options = options_of("fresh");
  options.loading.augment = Augment::kTimm;
  EXPECT_THAT(refusal(options), HasSubstr("--augment changes images, and mock:fresh has none"));
}

}  // namespace
}  // namespace lockstep
