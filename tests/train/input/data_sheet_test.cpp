#include "lockstep/train/input/data_sheet.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <set>

#include "tests/data/image_files.h"
#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/distributed_sampler.h"
#include "lockstep/data/loader.h"
#include "lockstep/train/input/datasets.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

SheetRequest of_mock() {
  SheetRequest request;
  request.options.data = {"mock", ""};
  request.options.seed = 5;
  return request;
}

// Levels 1 to 20 in two classes, as many in each.
void write_levels(const testing::TemporaryFolder& root, const std::string& part) {
  for (int i = 0; i < 20; ++i) {
    const std::string name = part + (i < 10 ? "cat/" : "dog/") + std::to_string(100 + i) + ".png";
    testing::write_flat_png(root, name, static_cast<std::uint8_t>(i + 1), 40);
  }
}

SheetRequest of_folder(const testing::TemporaryFolder& root) {
  SheetRequest request;
  request.options.data = {"images", root.path().string()};
  request.options.loading.image_size = 32;
  return request;
}

TEST(DataSheet, APictureIsTheImageOfTheSet) {
  const DataSheet sheet = make_data_sheet(of_mock());
  const data::InMemoryImages images = data::mock();
  ASSERT_EQ(sheet.samples.size(), 16U);
  for (const SheetSample& sample : sheet.samples) {
    const std::int64_t stored = sample.index % images.size();
    ASSERT_TRUE(sample.plain);
    const auto* pixels = images.pixels(stored);
    EXPECT_EQ(sample.plain->pixels, std::vector(pixels, pixels + images.shape().elements()));
    EXPECT_EQ(sample.label, images.label(stored));
    EXPECT_THAT(sample.draws, IsEmpty()) << "nothing changes them";
  }
}

// What a run's loader makes of this image in this epoch.
std::vector<std::uint8_t> trained_on(
    const SheetRequest& request, std::int64_t index, std::int64_t epoch) {
  const Datasets sets = load_datasets(request.options);
  const Loader loader(sets.train, {index}, 1,
      {.seed = static_cast<std::uint64_t>(request.options.seed), .epoch = epoch});
  const torch::Tensor numbers = (*loader.begin()).input().contiguous().view({-1});
  std::vector<std::uint8_t> pixels;
  for (std::int64_t i = 0; i < numbers.size(0); ++i)
    pixels.push_back(static_cast<std::uint8_t>(std::lround(255 * numbers[i].item<float>())));
  return pixels;
}

TEST(DataSheet, ADrawIsWhatTrainingSeesInThatEpoch) {
  SheetRequest request = of_mock();
  request.options.loading.augment = Augment::kCropFlip;
  request.samples = 3;
  request.draws = 3;
  const DataSheet sheet = make_data_sheet(request);
  std::set<std::vector<std::uint8_t>> looks;
  for (const SheetSample& sample : sheet.samples) {
    ASSERT_EQ(sample.draws.size(), 3U);
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      const Image& draw = sample.draws[static_cast<std::size_t>(epoch)];
      EXPECT_EQ(draw.pixels, trained_on(request, sample.index, epoch));
      looks.insert(draw.pixels);
    }
  }
  EXPECT_EQ(looks.size(), 9U) << "a draw is its own in every epoch";
}

TEST(DataSheet, SharesAndOrderAreThoseOfTheSampler) {
  SheetRequest request = of_mock();
  request.ranks = 7;
  const DataSheet sheet = make_data_sheet(request);
  const auto order = DistributedSampler(sheet.size, 0, 1, {.seed = 5}).epoch(0);
  for (std::size_t i = 0; i < sheet.samples.size(); ++i)
    EXPECT_EQ(sheet.samples[i].index, order[i]);
  std::vector<std::int64_t> repeated;
  for (int rank = 0; rank < 7; ++rank) {
    const auto indices = DistributedSampler(sheet.size, rank, 7, {.seed = 5}).epoch(0);
    const SheetShare& share = sheet.shares.at(static_cast<std::size_t>(rank));
    EXPECT_EQ(share.samples, std::ssize(indices));
    EXPECT_EQ(share.first, std::vector(indices.begin(), indices.begin() + 8));
    if (share.repeated) repeated.push_back(*share.repeated);
  }
  const std::int64_t more = 7 * sheet.shares[0].samples - sheet.size;
  EXPECT_GT(more, 0);
  EXPECT_EQ(repeated, std::vector(order.begin(), order.begin() + more));
}

TEST(DataSheet, EvaluationRepeatsNone) {
  const testing::TemporaryFolder root;
  for (const char* part : {"train/", "test/"}) write_levels(root, part);
  SheetRequest request = of_folder(root);
  request.part = SheetPart::kTest;
  request.ranks = 3;
  request.samples = 4;
  const DataSheet sheet = make_data_sheet(request);
  EXPECT_EQ(sheet.class_names, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(sheet.per_class, (std::vector<std::int64_t>{10, 10}));
  std::vector<std::int64_t> shares, indices;
  for (const SheetShare& share : sheet.shares) {
    shares.push_back(share.samples);
    EXPECT_FALSE(share.repeated);
  }
  EXPECT_EQ(shares, (std::vector<std::int64_t>{7, 7, 6}));
  for (const SheetSample& sample : sheet.samples) {
    indices.push_back(sample.index);
    EXPECT_THAT(sample.name, HasSubstr("test/"));
    const auto level = static_cast<std::uint8_t>(sample.index + 1);
    EXPECT_EQ(sample.plain->pixels, std::vector<std::uint8_t>(32 * 32 * 3, level));
  }
  EXPECT_EQ(indices, (std::vector<std::int64_t>{0, 5, 10, 15})) << "of every class";
}

TEST(DataSheet, PartsOfASplitAreThoseOfTraining) {
  const testing::TemporaryFolder root;
  write_levels(root, "");
  SheetRequest request = of_folder(root);
  EXPECT_EQ(make_data_sheet(request).size, 20) << "all is for training, and that can be seen";
  request.part = SheetPart::kTest;
  EXPECT_THAT(testing::message_of<InvalidArgument>([&] { make_data_sheet(request); }),
      HasSubstr("--val-split 0.1"));
  request.options.loading.val_split = 0.2;
  std::map<SheetPart, std::set<std::string>> names;
  for (const SheetPart part : {SheetPart::kTrain, SheetPart::kTest}) {
    request.part = part;
    request.samples = 100;
    const DataSheet sheet = make_data_sheet(request);
    const std::int64_t each = part == SheetPart::kTrain ? 8 : 2;
    EXPECT_EQ(sheet.per_class, (std::vector<std::int64_t>{each, each}));
    for (const SheetSample& sample : sheet.samples) {
      names[part].insert(sample.name);
      const std::int64_t level = std::stoi(sample.name.substr(sample.name.size() - 7)) - 99;
      EXPECT_EQ(sample.plain->pixels.at(0), level) << sample.name;
    }
  }
  const Datasets sets = load_datasets(request.options);
  std::set<std::string> tested;
  for (std::int64_t i = 0; i < sets.test->size(); ++i) tested.insert(sets.test->name(i));
  EXPECT_EQ(names[SheetPart::kTest], tested);
  EXPECT_EQ(names[SheetPart::kTrain].size(), 16U);
}

TEST(DataSheet, AFileThatCannotBeReadIsShownAsOne) {
  const testing::TemporaryFolder root;
  write_levels(root, "");
  testing::write_no_image(root, "cat/bad.png");
  SheetRequest request = of_folder(root);
  request.samples = 100;
  int failed = 0;
  for (const SheetSample& sample : make_data_sheet(request).samples) {
    if (sample.failure.empty()) continue;
    ++failed;
    EXPECT_THAT(sample.failure, HasSubstr("cat/bad.png"));
    EXPECT_FALSE(sample.plain);
  }
  EXPECT_EQ(failed, 1);
}

}  // namespace
}  // namespace lockstep
