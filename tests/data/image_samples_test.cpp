#include "lockstep/data/image_samples.h"

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "tests/data/image_files.h"
#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/transforms/augment.h"
#include "lockstep/formats/image/jpeg.h"

namespace lockstep::data {
namespace {

using lockstep::testing::message_of;
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
  const auto message = message_of<DataError>([&] { loader.begin(); });
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
  EXPECT_THAT(message_of<DataError>([&] { loader.begin(); }), HasSubstr("of this part of 2"));
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

constexpr std::int64_t kFiles = 12;
const std::vector<std::int64_t> kOrder{3, 0, 11, 7, 1, 2, 10, 9, 8, 4, 5, 6};

Image pattern(ImageSize size, std::int64_t number) {
  Image image = Image::of_size(size);
  for (std::size_t i = 0; i < image.pixels.size(); ++i) {
    image.pixels[i] =
        static_cast<std::uint8_t>((i * i / 97 + i * static_cast<std::size_t>(5 + number)) % 211);
  }
  return image;
}

// Two classes of JPEG files of different sizes.
class KeptSamplesTest : public ::testing::Test {
 protected:
  KeptSamplesTest() {
    for (std::int64_t i = 0; i < kFiles; ++i) write(i, encode_jpeg(pattern(size_of(i), i).view()));
  }

  static ImageSize size_of(std::int64_t i) { return {40 + 3 * i, 60 - 2 * i}; }
  static std::int64_t bytes_of(std::int64_t i) {
    return 3 * size_of(i).width * size_of(i).height + DecodedImages::kBytesBesidePixels;
  }

  std::filesystem::path path(std::int64_t i) const {
    return root_.path() / (i < kFiles / 2 ? "cat" : "dog") / (std::to_string(100 + i) + ".jpg");
  }

  void write(std::int64_t i, const std::vector<std::uint8_t>& bytes) {
    std::filesystem::create_directories(path(i).parent_path());
    root_.write(std::filesystem::relative(path(i), root_.path()).string(), bytes);
  }

  std::shared_ptr<FolderSamples> samples(
      std::shared_ptr<MemoryBudget> budget, OnBadImage rule = OnBadImage::kFail) const {
    return std::make_shared<FolderSamples>(ImageFolder(root_.path()),
        make_train_transform(augment_options(AugmentKind::kTimm, {24, 24})), rule,
        std::move(budget));
  }

  lockstep::testing::TemporaryFolder root_;
};

torch::Tensor epoch_of(const SamplesPointer& set, std::int64_t epoch, int workers = 0) {
  std::vector<torch::Tensor> images;
  const Loader loader(set, kOrder, 5, {.seed = 9, .epoch = epoch, .workers = workers});
  for (auto& batch : loader) images.push_back(batch.input().clone());
  return torch::cat(images);
}

// Samples whose decoded images are kept against those of files read each time.
TEST_F(KeptSamplesTest, AreThoseOfFilesReadEachTime) {
  const auto read = samples(nullptr);
  for (const std::int64_t bytes : {0L, 50'000L, 10'000'000L}) {
    for (const int workers : {0, 3}) {
      const auto kept = samples(std::make_shared<MemoryBudget>(bytes));
      for (const std::int64_t epoch : {0, 1, 2}) {
        EXPECT_TRUE(torch::equal(epoch_of(kept, epoch, workers), epoch_of(read, epoch)))
            << bytes << " " << workers << " " << epoch;
      }
    }
  }
}

TEST_F(KeptSamplesTest, AreNotReadAgain) {
  const auto kept = samples(std::make_shared<MemoryBudget>(10'000'000));
  epoch_of(kept, 0);
  const auto expected = epoch_of(samples(nullptr), 1);
  for (std::int64_t i = 0; i < kFiles; ++i) std::filesystem::remove(path(i));
  EXPECT_TRUE(torch::equal(epoch_of(kept, 1), expected));
}

// Room for the first two of the walk, and no byte more.
TEST_F(KeptSamplesTest, TakeNoMoreThanTheirBudget) {
  const auto budget = std::make_shared<MemoryBudget>(bytes_of(3) + bytes_of(0));
  const auto kept = samples(budget);
  epoch_of(kept, 0);
  EXPECT_EQ(budget->left(), 0);
  for (const std::int64_t i : {0, 3, 11}) std::filesystem::remove(path(i));
  EXPECT_NO_THROW(Loader(kept, {0, 3}, 2).begin());
  EXPECT_THAT(message_of<DataError>([&] { Loader(kept, {11}, 1).begin(); }),
      ::testing::HasSubstr("111.jpg"));
}

// Some looks at a file end above its damage: they are good with a budget, too.
TEST_F(KeptSamplesTest, OfADamagedFileAreThoseThatCanBeRead) {
  auto bytes = encode_jpeg(pattern({64, 400}, 1).view());
  std::fill(bytes.end() - 200, bytes.end() - 150, std::uint8_t{0xff});
  write(0, bytes);
  const auto budget = std::make_shared<MemoryBudget>(10'000'000);
  const auto kept = samples(budget), read = samples(nullptr);
  const auto look = [](const SamplesPointer& set, std::int64_t epoch) -> torch::Tensor {
    try {
      return Loader(set, {0}, 1, {.epoch = epoch}).begin()->input().clone();
    } catch (const DataError&) {
      return torch::zeros({0});
    }
  };
  int good = 0;
  for (std::int64_t epoch = 0; epoch < 40; ++epoch) {
    const auto expected = look(read, epoch);
    EXPECT_TRUE(torch::equal(look(kept, epoch), expected)) << epoch;
    good += expected.numel() > 0;
  }
  EXPECT_GT(good, 0);
  EXPECT_LT(good, 40);
  EXPECT_EQ(budget->left(), 10'000'000);
}

TEST_F(KeptSamplesTest, OfARepeatedSetAreDecodedOnce) {
  const auto budget = std::make_shared<MemoryBudget>(10'000'000);
  const auto twice = std::make_shared<RepeatedSamples>(samples(budget), 2);
  Loader loader(twice, {4, 16, 4, 16}, 1, {.workers = 3});
  for (auto& batch : loader) EXPECT_EQ(batch.target().item<std::int64_t>(), 0);
  EXPECT_EQ(budget->left(), 10'000'000 - bytes_of(4));
}

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
