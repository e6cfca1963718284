#include "lockstep/data/transforms/augment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <thread>

#include "tests/data/transforms/test_images.h"
#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/data/transforms/crop.h"
#include "lockstep/data/transforms/ops/colour.h"
#include "lockstep/data/transforms/rand_augment.h"
#include "lockstep/formats/image/image_reader.h"
#include "lockstep/formats/image/jpeg.h"

namespace lockstep::data {
namespace {

using lockstep::testing::message_of;
using ::testing::HasSubstr;
using testing::image_of;

using Numbers = std::vector<float>;

SampleKey key_of(std::int64_t index, std::int64_t epoch = 0) { return {42, epoch, index}; }

// Shows the image to the transform as a reader would: only the part that it asks for.
Numbers applied(const ImageTransform& transform, const Image& image, const SampleKey& key) {
  const Image part = crop(image.view(), transform.region(image.size, key));
  const ImageSize size = transform.output();
  Numbers out(static_cast<std::size_t>(size.width * size.height * image.channels));
  transform.apply(part.view(), key, out);
  return out;
}

Numbers applied(const AugmentOptions& options, const Image& image, const SampleKey& key) {
  return applied(*make_train_transform(options), image, key);
}

std::string refusal(const AugmentOptions& options, const Image& image) {
  return message_of<InvalidArgument>([&] { applied(options, image, {}); });
}

// Every part one after the other, each with its own stream.
Numbers part_by_part(const AugmentOptions& options, const Image& image, const SampleKey& key) {
  RandomStream crops(key, Draw::kCrop), flips(key, Draw::kFlip), colours(key, Draw::kColour),
      erasures(key, Draw::kErasing);
  const Box box = random_area_box(image.size, options.area, crops);
  Image shown =
      resize(crop(image.view(), box).view(), options.output, {options.interpolation, false});
  if (flips.uniform() < options.flip) shown = flip(shown.view());
  const AffineOptions affine{options.interpolation, {124, 116, 104}};
  for (const auto& step : draw_steps(parse_rand_augment(options.rand_augment), colours)) {
    shown = apply_step(shown, step, affine);
  }
  Numbers out(shown.pixels.size());
  PixelScale(3, options.normalization).to_float(shown.pixels.data(), out.data(), std::ssize(out));
  erase_randomly(out, options.output, options.erasing, erasures);
  return out;
}

TEST(Augment, AppliesTheParts) {
  for (const ImageSize size : {ImageSize{32, 32}, {45, 60}}) {
    const Image image = image_of("photo", size);
    const auto options = augment_options(AugmentKind::kTimm, {32, 32});
    for (std::int64_t index = 0; index < 200; ++index) {
      const SampleKey key{static_cast<std::uint64_t>(index % 2), index % 5, index};
      ASSERT_EQ(applied(options, image, key), part_by_part(options, image, key)) << index;
    }
  }
}

TEST(Augment, GivesTheSameForAKeyOnAnyThreadInAnyOrder) {
  const auto transform = make_train_transform(augment_options(AugmentKind::kTimm, {40, 40}));
  const Image image = image_of("photo", {50, 64});
  std::vector<Numbers> forwards(64), backwards(64);
  std::thread other([&] {
    for (std::int64_t i = 63; i >= 0; --i) {
      backwards[static_cast<std::size_t>(i)] = applied(*transform, image, key_of(i));
    }
  });
  for (std::int64_t i = 0; i < 64; ++i) {
    forwards[static_cast<std::size_t>(i)] = applied(*transform, image, key_of(i));
  }
  other.join();
  EXPECT_EQ(forwards, backwards);
}

TEST(Augment, AsksForTheCropAlone) {
  const auto transform = make_train_transform(augment_options(AugmentKind::kTimm, {32, 32}));
  bool smaller = false;
  for (std::int64_t index = 0; index < 20; ++index) {
    const Box box = transform->region({500, 375}, key_of(index));
    smaller |= box.width < 300 && box.height < 300;
    EXPECT_NE(box, transform->region({500, 375}, key_of(index, 1)));
  }
  EXPECT_TRUE(smaller);
  const auto padded = make_train_transform(augment_options(AugmentKind::kCropFlip, {32, 32}));
  EXPECT_EQ(padded->region({32, 32}, key_of(0)), (Box{0, 0, 32, 32}));
}

// What is decoded for the crop alone gives the numbers that the crop of the whole image gives.
TEST(Augment, AgreesOnPartsAndWholesOfFiles) {
  const auto transform = make_train_transform(augment_options(AugmentKind::kTimm, {40, 40}));
  const auto file = encode_jpeg(image_of("photo", {90, 70}).view());
  const ImageReader reader(file, "photo.jpg");
  const Image whole = reader.read();
  for (std::int64_t index = 0; index < 50; ++index) {
    const Image part = reader.read(transform->region(reader.size(), key_of(index)));
    Numbers out(40 * 40 * 3);
    transform->apply(part.view(), key_of(index), out);
    ASSERT_EQ(out, applied(*transform, whole, key_of(index)));
  }
}

TEST(Augment, TurnsJitterOffBesideRandAugment) {
  AugmentOptions options{.output = {16, 16}, .colour_jitter = {0.4, 0.4, 0.4}};
  const Image image = image_of("photo", {16, 16});
  const Numbers plain = applied(AugmentOptions{.output = {16, 16}}, image, key_of(0));
  EXPECT_NE(applied(options, image, key_of(0)), plain);
  options.rand_augment = "rand-p0";
  EXPECT_EQ(applied(options, image, key_of(0)), plain);
  options.force_colour_jitter = true;
  EXPECT_NE(applied(options, image, key_of(0)), plain);
}

TEST(Augment, FlipsInHalfOfTheCases) {
  const Image image = image_of("noise", {8, 8});
  const AugmentOptions options{.output = {8, 8}, .flip = 0.5};
  const Numbers plain = applied(AugmentOptions{.output = {8, 8}}, image, {});
  const Numbers flipped = applied(AugmentOptions{.output = {8, 8}}, flip(image.view()), {});
  int flips = 0;
  for (std::int64_t index = 0; index < 1000; ++index) {
    const Numbers out = applied(options, image, key_of(index));
    ASSERT_TRUE(out == plain || out == flipped);
    flips += out == flipped;
  }
  EXPECT_NEAR(flips, 500, 80);
}

// Each of the 81 places of an 8 x 8 image under a padding of 4, flipped or not, can be told apart.
TEST(Augment, CropsPaddedImagesAnywhere) {
  const Image image = image_of("noise", {8, 8});
  AugmentOptions options = augment_options(AugmentKind::kCropFlip, {8, 8}, {});
  std::map<Numbers, int> expected;
  for (std::int64_t y = -4; y <= 4; ++y) {
    for (std::int64_t x = -4; x <= 4; ++x) {
      const Image part = crop_padded(image.view(), {x, y, 8, 8});
      expected[applied(AugmentOptions{.output = {8, 8}, .normalization = {}}, part, {})];
    }
  }
  options.flip = 0;
  for (std::int64_t index = 0; index < 2000; ++index) {
    ++expected[applied(options, image, key_of(index))];
  }
  EXPECT_EQ(expected.size(), 81U);
  for (const auto& [numbers, count] : expected) EXPECT_GT(count, 5);
}

TEST(Augment, FlipsPaddedCrops) {
  const Image image = image_of("noise", {8, 8});
  AugmentOptions options = augment_options(AugmentKind::kCropFlip, {8, 8}, {});
  options.padding = 0;
  options.flip = 1;
  EXPECT_EQ(applied(options, image, key_of(0)),
      applied(AugmentOptions{.output = {8, 8}, .normalization = {}}, flip(image.view()), {}));
}

TEST(Augment, TakesGreyImagesUnlessColoursAreNeeded) {
  const Image grey = image_of("photo", {28, 28}, 1);
  const Normalization scale{.mean = {0.5F}, .std = {0.25F}};
  for (const auto kind : {AugmentKind::kNone, AugmentKind::kCropFlip}) {
    EXPECT_EQ(applied(augment_options(kind, {28, 28}, scale), grey, {}).size(), 784U);
    EXPECT_EQ(applied(augment_options(kind, {28, 28}, {}), grey, {}).size(), 784U);
    EXPECT_EQ(applied(augment_options(kind, {96, 96}, scale), grey, {}).size(), 9216U);
  }
  EXPECT_EQ(refusal(augment_options(AugmentKind::kTimm, {28, 28}, {}), grey),
      "augment: RandAugment and colour jitter need an image of 3 channels, this one has 1; take "
      "none or crop-flip");
  EXPECT_EQ(refusal(augment_options(AugmentKind::kNone, {28, 28}), grey),
      "augment: the image must have 3 channels, as mean and std: 1");
  EXPECT_EQ(
      refusal(augment_options(AugmentKind::kNone, {28, 28}, scale), image_of("photo", {28, 28})),
      "augment: the image must have 1 channels, as mean and std: 3");
}

TEST(Augment, RefusesImagesThatDoNotFit) {
  const AugmentOptions padded = augment_options(AugmentKind::kCropFlip, {32, 32});
  EXPECT_THAT(refusal(padded, image_of("flat", {23, 40})),
      HasSubstr("an image of 23 x 40 is too small for a padded crop of 32 x 32"));
  EXPECT_NO_THROW(applied(padded, image_of("flat", {24, 24}), {}));
  const auto transform = make_eval_transform({4, 4});
  Numbers room(47);
  EXPECT_THROW(transform->apply(image_of("flat", {4, 4}).view(), {}, room), InvalidArgument);
}

std::string refusal(const AugmentOptions& options) {
  return message_of<InvalidArgument>([&] { make_train_transform(options); });
}

TEST(AugmentOptions, OfTimmAreThoseOfCreateTransform) {
  const auto options = augment_options(AugmentKind::kTimm, {224, 224});
  EXPECT_EQ(options.crop, CropMode::kResized);
  EXPECT_EQ(options.interpolation, Interpolation::kBicubic);
  EXPECT_EQ(options.area.least_share, 0.08);
  EXPECT_EQ(options.area.most_share, 1);
  EXPECT_EQ(options.area.least_ratio, 3. / 4.);
  EXPECT_EQ(options.area.most_ratio, 4. / 3.);
  EXPECT_EQ(options.flip, 0.5);
  EXPECT_EQ(options.rand_augment, "rand-m9-mstd0.5-inc1");
  EXPECT_EQ(options.colour_jitter.brightness, 0.4);
  EXPECT_EQ(options.colour_jitter.contrast, 0.4);
  EXPECT_EQ(options.colour_jitter.saturation, 0.4);
  EXPECT_FALSE(options.force_colour_jitter);
  EXPECT_EQ(options.erasing.probability, 0.25);
  EXPECT_EQ(options.erasing.mode, ErasingMode::kPixel);
  EXPECT_EQ(options.erasing.count, 1);
  EXPECT_THAT(options.normalization.mean, ::testing::ElementsAre(0.485F, 0.456F, 0.406F));
  EXPECT_THAT(options.normalization.std, ::testing::ElementsAre(0.229F, 0.224F, 0.225F));
}

TEST(AugmentOptions, OfCropFlipDependOnTheOutput) {
  EXPECT_EQ(augment_options(AugmentKind::kCropFlip, {32, 32}).crop, CropMode::kPadded);
  EXPECT_EQ(augment_options(AugmentKind::kCropFlip, {64, 64}).crop, CropMode::kPadded);
  const auto large = augment_options(AugmentKind::kCropFlip, {65, 64});
  EXPECT_EQ(large.crop, CropMode::kResized);
  EXPECT_EQ(large.interpolation, Interpolation::kBilinear);
  EXPECT_EQ(large.flip, 0.5);
  EXPECT_EQ(large.erasing.probability, 0);
  EXPECT_TRUE(large.rand_augment.empty());
  EXPECT_FALSE(large.colour_jitter.any());
}

TEST(AugmentOptions, OfNoneAreThoseOfEvaluation) {
  const auto large = augment_options(AugmentKind::kNone, {224, 224});
  EXPECT_EQ(large.crop, CropMode::kCentre);
  EXPECT_EQ(large.centre_fraction, 0.875);
  EXPECT_EQ(large.flip, 0);
  EXPECT_EQ(augment_options(AugmentKind::kNone, {32, 32}).centre_fraction, 1);
}

TEST(AugmentOptions, RefuseWhatCannotBe) {
  EXPECT_THAT(refusal({.output = {0, 5}}),
      HasSubstr("the output must have 1 to 16384 pixels a side: 0 x 5"));
  EXPECT_THAT(refusal({.output = {5, 16'385}}), HasSubstr("pixels a side: 5 x 16385"));
  EXPECT_THAT(refusal({.normalization = {.mean = {0.5F, 0.5F}}}),
      HasSubstr("mean and std must have a value for 1 or for 3 channels: 2 and 0"));
  EXPECT_THAT(refusal({.normalization = {.mean = {0.5F}, .std = {1, 1, 1}}}),
      HasSubstr("mean and std must have a value for 1 or for 3 channels: 1 and 3"));
  EXPECT_THAT(refusal({.centre_fraction = 0}), HasSubstr("the fraction of the centre"));
  EXPECT_THAT(refusal({.centre_fraction = 1.5}), HasSubstr("the fraction of the centre"));
  EXPECT_THAT(refusal({.padding = -1}), HasSubstr("padding must be 0 to 16384: -1"));
  EXPECT_THAT(refusal({.area = {.least_share = 0}}), HasSubstr("the area's share"));
  EXPECT_THAT(refusal({.area = {.least_ratio = 2}}),
      HasSubstr("the area's ratio must be a range between 0.001 and 1000: 2 to 1.33333"));
  EXPECT_THAT(refusal({.area = {.most_ratio = 1e9}}), HasSubstr("the area's ratio"));
  EXPECT_THAT(refusal({.flip = 1.5}), HasSubstr("a flip must be from 0 to 1: 1.5"));
  EXPECT_THAT(refusal({.rand_augment = "rand-x9"}), HasSubstr("an unknown section: \"x9\""));
  EXPECT_THAT(refusal({.colour_jitter = {.contrast = -0.1}}),
      HasSubstr("colour jitter must not be negative: -0.1"));
  EXPECT_THAT(refusal({.erasing = {.probability = 2}}), HasSubstr("erasing must be from 0 to 1"));
  EXPECT_THAT(refusal({.erasing = {.count = 0}}), HasSubstr("rectangles must be counted: 0"));
  EXPECT_THAT(refusal({.erasing = {.least_ratio = 1.1}}), HasSubstr("the erased ratio"));
}

TEST(AugmentOptions, OfTimmNeedThreeChannels) {
  const Normalization grey{.mean = {0.5F}, .std = {0.5F}};
  EXPECT_THAT(refusal(augment_options(AugmentKind::kTimm, {28, 28}, grey)),
      HasSubstr("RandAugment and colour jitter need 3 channels, mean and std have 1"));
  EXPECT_NE(make_train_transform(augment_options(AugmentKind::kCropFlip, {28, 28}, grey)), nullptr);
}

}  // namespace
}  // namespace lockstep::data
