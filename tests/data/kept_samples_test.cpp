// Samples of a folder whose decoded images are kept against those of files read each time.

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

#include "tests/data/image_files.h"
#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/data/image_samples.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/transforms/augment.h"

namespace lockstep::data {
namespace {

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
  EXPECT_THAT(lockstep::testing::message_of<DataError>([&] { Loader(kept, {11}, 1).begin(); }),
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

}  // namespace
}  // namespace lockstep::data
