#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/data/transforms/augment.h"

namespace lockstep::data {
namespace {

using ::testing::HasSubstr;

std::string refusal(const AugmentOptions& options) {
  return lockstep::testing::message_of<InvalidArgument>([&] { make_train_transform(options); });
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
