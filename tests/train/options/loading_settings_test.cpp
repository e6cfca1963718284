#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parsed_flags.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using testing::refusal;

LoadingSettings loading_of(const std::string& line) { return testing::parsed(line).loading; }

TEST(LoadingFlags, NoneGiveTheDefaults) {
  const LoadingSettings settings = loading_of("");
  EXPECT_EQ(settings.augment, Augment::kNone);
  EXPECT_EQ(settings.bad_images, BadImages::kFail);
  EXPECT_EQ(settings.val_split, 0);
  EXPECT_EQ(settings.cache_decoded, 0);
  EXPECT_FALSE(settings.image_size || settings.workers);
}

TEST(LoadingFlags, AreRead) {
  const LoadingSettings settings =
      loading_of("--augment timm --image_size 160 -j 3 --bad-images skip --val-split 0.25");
  EXPECT_EQ(settings.augment, Augment::kTimm);
  EXPECT_EQ(settings.image_size, 160);
  EXPECT_EQ(settings.workers, 3);
  EXPECT_EQ(settings.bad_images, BadImages::kSkip);
  EXPECT_EQ(settings.val_split, 0.25);
  EXPECT_EQ(loading_of("--cache-decoded 1.5G").cache_decoded, 3 * (std::int64_t{1} << 29));
  EXPECT_EQ(loading_of("--augment=crop-flip").augment, Augment::kCropFlip);
  EXPECT_EQ(loading_of("--workers auto").workers, std::nullopt);
}

TEST(LoadingFlags, ThatCannotBeAreRefusedByName) {
  EXPECT_EQ(refusal("--augment tim"),
      "train: --augment must be one of none, crop-flip, timm: tim; did you mean timm?");
  EXPECT_THAT(refusal("--bad-images hide"), HasSubstr("--bad-images must be one of fail, skip"));
  EXPECT_EQ(refusal("--workers many"),
      "train: --workers must be a whole number from 0 to 256, or auto: many");
  EXPECT_EQ(refusal("--workers 257"),
      "train: --workers must be a whole number from 0 to 256, or auto: 257");
  EXPECT_EQ(
      refusal("--image-size 0"), "train: --image-size must be a whole number from 1 to 16384: 0");
  EXPECT_THAT(refusal("--cache-decoded 2GB"),
      HasSubstr("train: --cache-decoded: bytes: must be an amount such as 2G"));
  EXPECT_THAT(refusal("--val-split 1"),
      HasSubstr("--val-split must be a number of at least 0 and below 1"));
  EXPECT_THAT(refusal("--val-split nan"), HasSubstr("--val-split must be a number of at least 0"));
}

TEST(Workers, AreAsManyAsAskedOrHalfOfTheCores) {
  EXPECT_EQ(workers_of({.workers = 5}, 1, true), 5);
  EXPECT_EQ(workers_of({.workers = 0}, 16, false), 0);
  EXPECT_EQ(workers_of({}, 16, true), 0);
  EXPECT_EQ(workers_of({}, 1, false), 0);
  EXPECT_EQ(workers_of({}, 2, false), 1);
  EXPECT_EQ(workers_of({}, 9, false), 4);
  EXPECT_EQ(workers_of({}, 64, false), 8);
}

}  // namespace
}  // namespace lockstep
