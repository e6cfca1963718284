#include "lockstep/train/input/data_sheet.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "tests/data/image_files.h"
#include "tests/data/tensor_files.h"
#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/distributed_sampler.h"
#include "lockstep/data/image_samples.h"
#include "lockstep/data/loader.h"
#include "lockstep/formats/image/image_reader.h"
#include "lockstep/train/input/datasets.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

SheetRequest of_mock() {
  SheetRequest request;
  request.options.data = {"mock", ""};
  request.options.seed = 5;
  return request;
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
  for (const char* part : {"train/", "test/"}) testing::write_levels(root, part);
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
  testing::write_levels(root, "");
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
  testing::write_levels(root, "");
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

TEST(DataSheet, OfTensorsHasTheNumbersOfInputsAndTargets) {
  const testing::TemporaryFolder root;
  SheetRequest request;
  request.options.data.name = "tensors";
  request.options.data.directory = testing::write_tensors(root.path() / "a.safetensors",
      {testing::counted_floats("x", {2, 3}), testing::counted_floats("y", {2, 2}, 7)});
  const DataSheet sheet = make_data_sheet(request);
  EXPECT_THAT(sheet.inputs, ElementsAre("x [3] float"));
  EXPECT_THAT(sheet.targets, ElementsAre("y [2] float"));
  EXPECT_THAT(sheet.per_class, IsEmpty());
  ASSERT_EQ(sheet.samples.size(), 2U);
  const SheetSample& sample = sheet.samples[sheet.samples[0].index == 1 ? 0 : 1];
  ASSERT_EQ(sample.numbers.size(), 2U);
  EXPECT_EQ(sample.numbers[0].tensor, "x");
  EXPECT_THAT(sample.numbers[0].first, ElementsAre(3, 4, 5));
  EXPECT_EQ(sample.numbers[1].tensor, "y");
  EXPECT_THAT(sample.numbers[1].shape, ElementsAre(2));
  EXPECT_THAT(sample.numbers[1].first, ElementsAre(9, 10));
}

TEST(DataSheet, OfTensorsHasClassesWhereTheTargetHas) {
  const testing::TemporaryFolder root;
  SheetRequest request;
  request.options.data.name = "tensors";
  request.options.data.directory = testing::write_tensors(root.path() / "a.safetensors",
      {testing::counted_floats("x", {3, 3}), testing::integers("y", {2, 0, 2})});
  const DataSheet sheet = make_data_sheet(request);
  EXPECT_THAT(sheet.per_class, ElementsAre(1, 0, 2));
  EXPECT_THAT(sheet.targets, IsEmpty());
  EXPECT_EQ(sheet.samples[0].numbers.size(), 1U);
}

TEST(DataSheet, OfTextHasNoClassesAndSaysWhatIsLeft) {
  const testing::TemporaryFolder root;
  SheetRequest request;
  request.options.data.name = "text";
  request.options.data.directory = root.write("a.txt", std::vector<std::uint8_t>(10, 'a'));
  request.options.data.sequence_length = 4;
  const DataSheet sheet = make_data_sheet(request);
  EXPECT_THAT(sheet.per_class, IsEmpty());
  EXPECT_THAT(sheet.targets, ElementsAre("target [4] int64"));
  EXPECT_THAT(sheet.remark, HasSubstr("1 of 10 tokens"));
}

TEST(SheetNumbers, AreTheirRangeAndTheFirstOfThem) {
  std::vector<double> numbers(10);
  std::iota(numbers.begin(), numbers.end(), -2.0);
  const SheetNumbers seen = numbers_of_sample(numbers, {1, 1, 10});
  EXPECT_EQ(seen.least, -2);
  EXPECT_EQ(seen.mean, 2.5);
  EXPECT_EQ(seen.most, 7);
  EXPECT_THAT(seen.first, ElementsAre(-2, -1, 0, 1, 2, 3, 4, 5));
  EXPECT_THAT(seen.shape, ElementsAre(1, 1, 10));
}

TEST(SheetNumbers, ANumberThatIsNoneIsNotHidden) {
  const std::vector<double> numbers{1, std::nan(""), 3};
  const SheetNumbers seen = numbers_of_sample(numbers, {3, 1, 1});
  for (const double number : {seen.least, seen.mean, seen.most}) EXPECT_TRUE(std::isnan(number));
}

TEST(SheetNumbers, OnlyGreyAndColourWithTwoSidesArePictures) {
  EXPECT_TRUE(is_pictured({1, 2, 2}));
  EXPECT_TRUE(is_pictured({3, 28, 28}));
  EXPECT_FALSE(is_pictured({2, 28, 28}));
  EXPECT_FALSE(is_pictured({1, 1, 64}));
  EXPECT_FALSE(is_pictured({3, 64, 1}));
  EXPECT_FALSE(is_pictured({28, 28})) << "an input without channels";
}

TEST(SheetNumbers, AreSpreadFromBlackToWhiteUnlessTheyArePixels) {
  std::vector<float> pixels{0, 0.25F, 1.0005F}, others{-1, 0, 3}, equal{2, 2};
  EXPECT_FALSE(spread_beyond_pixels(pixels));
  EXPECT_THAT(pixels, ElementsAre(0, 0.25F, 1.0005F));
  EXPECT_TRUE(spread_beyond_pixels(others));
  EXPECT_THAT(others, ElementsAre(0, 0.25F, 1));
  EXPECT_TRUE(spread_beyond_pixels(equal));
  EXPECT_THAT(equal, ElementsAre(0, 0));
}

data::InMemoryImages images_of(const data::ImageShape& shape, std::vector<std::uint8_t> pixels) {
  return data::InMemoryImages(
      {.name = "some", .shape = shape, .classes = 2, .pixels = std::move(pixels), .labels = {1}});
}

// The picture of the first sample.
Image picture_of(const data::Samples& set, const data::Normalization& normalization = {}) {
  return decode_image(sample_picture(set, 0, normalization), "picture");
}

std::vector<std::uint8_t> all_bytes(std::size_t count) {
  std::vector<std::uint8_t> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>(i * 7 % 256);
  return bytes;
}

TEST(SamplePicture, HasThePixelsOfTheSetWhateverItsNormalization) {
  const auto pixels = all_bytes(16 * 16 * 3);
  const data::Normalization usual{{0.49F, 0.48F, 0.45F}, {0.25F, 0.24F, 0.26F}};
  for (const auto& normalization : {data::Normalization(), usual}) {
    const data::StoredSamples set(
        images_of({.channels = 3, .height = 16, .width = 16}, pixels), normalization);
    const Image image = picture_of(set, normalization);
    EXPECT_EQ(image.size, (ImageSize{16, 16}));
    EXPECT_EQ(image.pixels, pixels);
  }
}

TEST(SamplePicture, AGreyImageStaysGrey) {
  const auto pixels = all_bytes(4 * 6);
  const data::StoredSamples set(images_of({.channels = 1, .height = 4, .width = 6}, pixels));
  const Image image = picture_of(set);
  EXPECT_EQ(image.size, (ImageSize{6, 4}));
  for (std::size_t i = 0; i < pixels.size(); ++i) EXPECT_EQ(image.pixels[3 * i], pixels[i]);
}

TEST(SamplePicture, NumbersBeyondPixelsAreSpread) {
  // A std of 1/255 makes the pixels 10, 20 and 30 into these numbers.
  const data::Normalization numbers{.mean = {0}, .std = {1.0F / 255}};
  const data::StoredSamples set(
      images_of({.channels = 1, .height = 1, .width = 3}, {10, 20, 30}), numbers);
  const Image image = picture_of(set);
  EXPECT_EQ(image.pixels[0], 0);
  EXPECT_NEAR(image.pixels[3], 127.5, 1);
  EXPECT_EQ(image.pixels[6], 255);
}

TEST(SamplePicture, ALargeOneIsScaledDown) {
  const data::StoredSamples set(images_of(
      {.channels = 1, .height = 300, .width = 600}, std::vector<std::uint8_t>(300 * 600, 77)));
  const Image image = picture_of(set);
  EXPECT_EQ(image.size, (ImageSize{256, 128}));
  EXPECT_EQ(image.pixels.front(), 77);
}

}  // namespace
}  // namespace lockstep
