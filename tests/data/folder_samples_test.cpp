#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/image_files.h"
#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/data/image_samples.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/transforms/augment.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;

constexpr int kSide = 4;

// Two classes of three files: 10 20 30 and 110 120 130, of which `bad` are none.
class FolderSamplesTest : public ::testing::Test {
 protected:
  void make(const std::vector<std::string>& bad) {
    for (const int level : {10, 20, 30, 110, 120, 130}) {
      const std::string name = (level < 100 ? "cat/" : "dog/") + std::to_string(level) + ".png";
      lockstep::testing::write_flat_png(root_, name, static_cast<std::uint8_t>(level));
    }
    for (const auto& name : bad) lockstep::testing::write_no_image(root_, name);
  }

  std::shared_ptr<FolderSamples> samples(OnBadImage rule) {
    const Normalization units{{0, 0, 0}, {1.F / 255, 1.F / 255, 1.F / 255}};
    return std::make_shared<FolderSamples>(
        ImageFolder(root_.path()), make_eval_transform({kSide, kSide}, units), rule);
  }

  lockstep::testing::TemporaryFolder root_;
};

std::vector<std::int64_t> levels(const Batch& batch) {
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < batch.input().size(0); ++i) {
    const auto image = batch.input()[i];
    EXPECT_NEAR(image.min().item<float>(), image.max().item<float>(), 1e-3);
    result.push_back(std::lround(image.mean().item<float>()));
  }
  return result;
}

std::vector<std::int64_t> targets(const Batch& batch) {
  const auto* first = batch.target().const_data_ptr<std::int64_t>();
  return {first, first + batch.target().size(0)};
}

const std::vector<std::int64_t> kAll{0, 1, 2, 3, 4, 5};

TEST_F(FolderSamplesTest, AreReadAndScaled) {
  make({});
  const auto set = samples(OnBadImage::kFail);
  EXPECT_EQ(set->size(), 6);
  EXPECT_EQ(set->classes(), 2);
  EXPECT_EQ(set->shape(), (ImageShape{3, kSide, kSide}));
  for (const int workers : {0, 3}) {
    const Loader loader(set, kAll, 6, {.workers = workers});
    auto batch = loader.begin();
    EXPECT_EQ(levels(*batch), (std::vector<std::int64_t>{10, 20, 30, 110, 120, 130}));
    EXPECT_EQ(targets(*batch), (std::vector<std::int64_t>{0, 0, 0, 1, 1, 1}));
  }
}

TEST_F(FolderSamplesTest, ThatAreBadEndTheWalkByName) {
  make({"cat/30.png"});
  const Loader loader(samples(OnBadImage::kFail), kAll, 3);
  const auto message = lockstep::testing::message_of<DataError>([&] { loader.begin(); });
  EXPECT_THAT(message, HasSubstr("cat/30.png"));
  // It has its name once: the loader adds none.
  EXPECT_THAT(message, ::testing::Not(HasSubstr("loader: ")));
}

TEST_F(FolderSamplesTest, ThatAreBadGiveWayToTheNextWithItsClass) {
  make({"cat/20.png", "cat/30.png", "dog/130.png"});
  const auto set = samples(OnBadImage::kReplace);
  for (int walk = 0; walk < 2; ++walk) {
    const Loader loader(set, kAll, 6, {.workers = walk});
    auto batch = loader.begin();
    EXPECT_EQ(levels(*batch), (std::vector<std::int64_t>{10, 110, 110, 110, 120, 10}));
    EXPECT_EQ(targets(*batch), (std::vector<std::int64_t>{0, 1, 1, 1, 1, 0}));
  }
  const auto bad = set->bad();
  ASSERT_EQ(bad.size(), 3U);
  EXPECT_THAT(bad.at(1), HasSubstr("cat/20.png"));
  EXPECT_THAT(bad.at(2), HasSubstr("cat/30.png"));
  EXPECT_THAT(bad.at(5), HasSubstr("dog/130.png"));
}

// A held-out image is not trained on because another cannot be read.
TEST_F(FolderSamplesTest, ThatAreBadGiveWayWithinTheirPartOfASplit) {
  make({"cat/20.png", "dog/130.png"});
  const auto set = samples(OnBadImage::kReplace);
  const auto part = std::make_shared<SampleSubset>(set, std::vector<std::int64_t>{5, 0, 1, 4});
  const Loader loader(part, {0, 1, 2, 3}, 4);
  EXPECT_EQ(levels(*loader.begin()), (std::vector<std::int64_t>{10, 10, 120, 120}));
  EXPECT_EQ(set->bad().size(), 2U) << "what its parts met";
  EXPECT_EQ(levels(*Loader(set, {1, 5}, 2).begin()), (std::vector<std::int64_t>{30, 10}));
}

TEST_F(FolderSamplesTest, OfAPartOfAPartAndOfARepeatedOneStayWithinIt) {
  make({"cat/20.png"});
  const auto half = std::make_shared<SampleSubset>(
      samples(OnBadImage::kReplace), std::vector<std::int64_t>{0, 1, 2, 3});
  const auto twice = std::make_shared<RepeatedSamples>(half, 2);
  const SampleSubset quarter(half, {1, 3});
  const auto ends = std::make_shared<SampleSubset>(twice, std::vector<std::int64_t>{0, 5});
  const auto part = std::make_shared<SampleSubset>(quarter);
  EXPECT_EQ(levels(*Loader(part, {0, 1}, 2).begin()), (std::vector<std::int64_t>{110, 110}));
  EXPECT_EQ(levels(*Loader(ends, {0, 1}, 2).begin()), (std::vector<std::int64_t>{10, 10}));
}

TEST_F(FolderSamplesTest, OfAPartOfWhichNoneCanBeReadEndTheWalk) {
  make({"cat/20.png", "cat/30.png"});
  const auto part = std::make_shared<SampleSubset>(
      samples(OnBadImage::kReplace), std::vector<std::int64_t>{1, 2});
  const Loader loader(part, {0, 1}, 2);
  EXPECT_THAT(lockstep::testing::message_of<DataError>([&] { loader.begin(); }),
      HasSubstr("of this part of 2"));
}

TEST_F(FolderSamplesTest, ThatAreBadCountForNothingWhenIgnored) {
  make({"cat/30.png"});
  const auto set = samples(OnBadImage::kIgnore);
  const Loader loader(set, kAll, 6);
  auto batch = loader.begin();
  EXPECT_EQ(levels(*batch), (std::vector<std::int64_t>{10, 20, 0, 110, 120, 130}));
  EXPECT_EQ(targets(*batch), (std::vector<std::int64_t>{0, 0, kIgnoredTarget, 1, 1, 1}));
  EXPECT_EQ(set->bad().size(), 1U);
  // Memory that held another image before is black, too.
  const Loader one_by_one(set, {1, 2}, 1);
  auto second = one_by_one.begin();
  ++second;
  EXPECT_EQ(levels(*second), (std::vector<std::int64_t>{0}));
}

TEST_F(FolderSamplesTest, OfWhichNoneCanBeReadEndTheWalk) {
  make({"cat/10.png", "cat/20.png", "cat/30.png", "dog/110.png", "dog/120.png", "dog/130.png"});
  const Loader loader(samples(OnBadImage::kReplace), kAll, 6);
  EXPECT_THROW(loader.begin(), DataError);
}

TEST_F(FolderSamplesTest, ThatAreGoneAreBadToo) {
  make({});
  const auto set = samples(OnBadImage::kReplace);
  std::filesystem::remove(root_.path() / "dog/110.png");
  const Loader loader(set, {3}, 1);
  EXPECT_EQ(levels(*loader.begin()), (std::vector<std::int64_t>{120}));
  EXPECT_THAT(set->bad().at(3), HasSubstr("110.png"));
}

}  // namespace
}  // namespace lockstep::data
