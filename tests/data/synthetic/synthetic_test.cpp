#include "bench/synthetic/synthetic.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <gtest/gtest.h>
#include <numbers>
#include <set>

#include "lockstep/core/error.h"
#include "lockstep/data/pattern.h"
#include "lockstep/formats/checksum.h"

namespace lockstep::data {
namespace {

constexpr ImageSize kSmall{32, 32};

Image draw(std::int64_t label, std::int64_t classes, const SyntheticKey& key) {
  return synthetic_image(synthetic_class(label, classes), key, kSmall, 3);
}

TEST(SyntheticStream, IsSplitMix64) {
  // The first numbers of the authors' program (splitmix64.c) for the seed 1234567.
  SyntheticStream stream(1234567);
  EXPECT_EQ(stream.next(), 6457827717110365317U);
  EXPECT_EQ(stream.next(), 3203168211198807973U);
  EXPECT_EQ(stream.next(), 9817491932198370423U);
}

TEST(SyntheticStream, DrawsEveryNumberOfARange) {
  SyntheticStream stream(1);
  std::array<int, 5> counts{};
  for (int i = 0; i < 5000; ++i) ++counts.at(static_cast<std::size_t>(stream.between(-2, 2) + 2));
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);
}

TEST(SyntheticPlane, KnowsTheSine) {
  for (std::int64_t angle = -2048; angle < 2048; ++angle) {
    const double turn = static_cast<double>(angle) / 1024 * 2 * std::numbers::pi;
    EXPECT_NEAR(static_cast<double>(sine(angle)), 1024 * std::sin(turn), 3) << angle;
    EXPECT_NEAR(static_cast<double>(cosine(angle)), 1024 * std::cos(turn), 3) << angle;
  }
}

TEST(SyntheticPlane, TurnsAndScales) {
  const Placement placement({1000, 2000}, 512, 256);  // a quarter of a turn
  const Point place = placement({1000, 2512});
  EXPECT_NEAR(static_cast<double>(place.x), 1024, 4);
  EXPECT_NEAR(static_cast<double>(place.y), 0, 4);
}

TEST(SyntheticShape, EachIsItsOwnMirrorImageAndHasItsSize) {
  for (std::int64_t shape = 0; shape < kShapes; ++shape) {
    bool across = true;
    bool along = true;
    std::int64_t inside = 0;
    for (std::int64_t y = -1500; y <= 1500; y += 50) {
      for (std::int64_t x = -1500; x <= 1500; x += 50) {
        const std::int64_t distance = shape_distance(shape, {x, y});
        across = across && distance == shape_distance(shape, {-x, y});
        along = along && distance == shape_distance(shape, {x, -y});
        inside += distance < 0 ? 1 : 0;
        if (x * x + y * y > 1400 * 1400) {
          EXPECT_GT(distance, 0) << shape_name(shape);
        }
      }
    }
    EXPECT_TRUE(across || along) << shape_name(shape);
    EXPECT_GT(inside, 150) << shape_name(shape);
  }
}

TEST(SyntheticTexture, EachUsesTheWholeRange) {
  for (std::int64_t texture = 0; texture < kTextures; ++texture) {
    std::int64_t least = 255;
    std::int64_t most = 0;
    for (std::int64_t y = -8000; y < 8000; y += 97) {
      for (std::int64_t x = -8000; x < 8000; x += 97) {
        const std::int64_t value = texture_value(texture, {x, y}, 5);
        least = std::min(least, value);
        most = std::max(most, value);
      }
    }
    EXPECT_GE(least, 0) << texture_name(texture);
    EXPECT_LE(least, 20) << texture_name(texture);
    EXPECT_LE(most, 255) << texture_name(texture);
    EXPECT_GE(most, 235) << texture_name(texture);
  }
}

TEST(Synthetic, IsTheSameOnEveryMachine) {
  Sha256 digest;
  for (std::int64_t label = 0; label < 100; ++label) {
    const SyntheticKey key{.seed = 3, .train = label % 2 == 0, .index = label};
    digest.update(draw(label, 100, key).pixels);
    digest.update(synthetic_image(synthetic_class(label, 100), key, {50, 41}, 1).pixels);
  }
  EXPECT_EQ(digest.finish(), "36a54b3f484e9fd939c2620152fa4243c6b88d0f4ec1c076dc13b69bd47f95f9");
}

TEST(Synthetic, IsAnotherImageForEachKey) {
  std::set<std::string> images;
  for (const std::uint64_t seed : {0U, 1U}) {
    for (const bool train : {false, true}) {
      for (std::int64_t index = 0; index < 100; ++index) {
        const auto pixels = draw(0, 10, {.seed = seed, .train = train, .index = index}).pixels;
        images.emplace(pixels.begin(), pixels.end());
      }
    }
  }
  EXPECT_EQ(images.size(), 400U);
}

TEST(Synthetic, GivesEachClassItsShapeAndTextures) {
  EXPECT_EQ(synthetic_class(3, 10).name(), "frame");
  EXPECT_EQ(synthetic_class(3, 10).textures, kTextures);
  EXPECT_EQ(synthetic_class(13, 20).name(), "frame-blotches");
  EXPECT_EQ(synthetic_class(13, 20).textures, 5);
  EXPECT_EQ(synthetic_class(99, 100).name(), "crescent-slope");
  for (const std::int64_t classes : {1, 2, 10, 11, 20, 35, 99, 100}) {
    std::set<std::pair<std::int64_t, std::int64_t>> taken;
    std::set<std::string> names;
    for (std::int64_t label = 0; label < classes; ++label) {
      const auto kind = synthetic_class(label, classes);
      names.insert(kind.name());
      for (std::int64_t i = 0; i < kind.textures; ++i) {
        EXPECT_TRUE(taken.insert({kind.shape, kind.first_texture + i}).second) << classes;
      }
    }
    EXPECT_EQ(static_cast<std::int64_t>(names.size()), classes);
  }
  EXPECT_THROW(synthetic_class(0, 101), InvalidArgument);
  EXPECT_THROW(synthetic_class(10, 10), InvalidArgument);
  EXPECT_THROW(synthetic_class(-1, 10), InvalidArgument);
}

TEST(Synthetic, ShowsTheShapeOfItsClass) {
  for (std::int64_t index = 0; index < 50; ++index) {
    const auto one = draw(0, 10, {.index = index}).pixels;
    const auto other = draw(5, 10, {.index = index}).pixels;
    std::size_t different = 0;
    for (std::size_t i = 0; i < one.size(); ++i) different += one[i] != other[i] ? 1 : 0;
    EXPECT_GT(different, one.size() / 50) << index;
    EXPECT_LT(different, one.size() / 2) << index;
  }
}

/// Returns the mean of each channel.
std::array<double, 3> mean_colour(const Image& image) {
  std::array<double, 3> sum{};
  for (std::size_t i = 0; i < image.pixels.size(); ++i) sum[i % 3] += image.pixels[i];
  const std::size_t pixels = image.pixels.size() / 3;
  for (double& channel : sum) channel /= static_cast<double>(pixels);
  return sum;
}

TEST(Synthetic, TellsNothingByItsMeanColour) {
  constexpr std::int64_t kClasses = 10;
  std::array<std::array<double, 3>, kClasses> means{};
  for (std::int64_t index = 0; index < 2000; ++index) {
    const auto colour = mean_colour(draw(index % kClasses, kClasses, {.index = index}));
    auto& mean = means[static_cast<std::size_t>(index % kClasses)];
    for (std::size_t i = 0; i < 3; ++i) mean[i] += colour[i] / 200;
  }
  const auto distance = [](const std::array<double, 3>& a, const std::array<double, 3>& b) {
    return std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
  };
  std::int64_t right = 0;
  for (std::int64_t index = 0; index < 1000; ++index) {
    const auto colour =
        mean_colour(draw(index % kClasses, kClasses, {.train = false, .index = index}));
    const auto nearest = std::min_element(means.begin(), means.end(),
        [&](auto& a, auto& b) { return distance(a, colour) < distance(b, colour); });
    right += nearest - means.begin() == index % kClasses ? 1 : 0;
  }
  EXPECT_LT(right, 200);  // by chance 100
}

TEST(Synthetic, HasGreyOrColour) {
  const auto kind = synthetic_class(0, 10);
  EXPECT_EQ(synthetic_image(kind, {}, {20, 10}, 1).pixels.size(), 200U);
  EXPECT_EQ(synthetic_image(kind, {}, {20, 10}, 3).pixels.size(), 600U);
  EXPECT_THROW(synthetic_image(kind, {}, {20, 10}, 2), InvalidArgument);
  EXPECT_THROW(synthetic_image(kind, {}, {0, 10}, 3), InvalidArgument);
}

}  // namespace
}  // namespace lockstep::data
