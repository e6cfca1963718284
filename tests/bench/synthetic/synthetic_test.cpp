#include "bench/synthetic/synthetic.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <numbers>
#include <set>
#include <system_error>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/file_size_limit.h"

#include "bench/synthetic/pattern.h"
#include "bench/synthetic/synthetic_set.h"
#include "lockstep/core/error.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/image_folder.h"
#include "lockstep/data/split_mix.h"
#include "lockstep/formats/checksum.h"
#include "lockstep/formats/cifar.h"
#include "lockstep/formats/image/image_reader.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr ImageSize kSmall{32, 32};

Image draw(std::int64_t label, std::int64_t classes, const SyntheticKey& key) {
  return synthetic_image(synthetic_class(label, classes), key, kSmall, 3);
}

TEST(SplitMix, GivesTheNumbersOfItsAuthors) {
  // The first numbers of the authors' program (splitmix64.c) for the seed 1234567.
  SplitMix stream(1234567);
  EXPECT_EQ(stream.next(), 6457827717110365317U);
  EXPECT_EQ(stream.next(), 3203168211198807973U);
  EXPECT_EQ(stream.next(), 9817491932198370423U);
}

TEST(SplitMix, DrawsEveryNumberOfARange) {
  SplitMix stream(1);
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
        const std::int64_t distance = shape_at(shape).distance({x, y});
        across = across && distance == shape_at(shape).distance({-x, y});
        along = along && distance == shape_at(shape).distance({x, -y});
        inside += distance < 0 ? 1 : 0;
        if (x * x + y * y > 1400 * 1400) {
          EXPECT_GT(distance, 0) << shape_at(shape).name;
        }
      }
    }
    EXPECT_TRUE(across || along) << shape_at(shape).name;
    EXPECT_GT(inside, 150) << shape_at(shape).name;
  }
}

TEST(SyntheticTexture, EachUsesTheWholeRange) {
  for (std::int64_t texture = 0; texture < kTextures; ++texture) {
    std::int64_t least = 255;
    std::int64_t most = 0;
    for (std::int64_t y = -8000; y < 8000; y += 97) {
      for (std::int64_t x = -8000; x < 8000; x += 97) {
        const std::int64_t value = texture_at(texture).value({x, y}, 5);
        least = std::min(least, value);
        most = std::max(most, value);
      }
    }
    EXPECT_GE(least, 0) << texture_at(texture).name;
    EXPECT_LE(least, 20) << texture_at(texture).name;
    EXPECT_LE(most, 255) << texture_at(texture).name;
    EXPECT_GE(most, 235) << texture_at(texture).name;
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

TEST(Synthetic, RefusesOtherChannelsAndNoPixels) {
  const auto kind = synthetic_class(0, 10);
  EXPECT_THROW(synthetic_image(kind, {}, {20, 10}, 2), InvalidArgument);
  EXPECT_THROW(synthetic_image(kind, {}, {0, 10}, 3), InvalidArgument);
}

/// Writes sets beside each other.
class SyntheticSet : public ::testing::Test {
 protected:
  fs::path at(const std::string& name) const { return directory_.path() / name; }

  std::string refusal(const std::string& name, const SyntheticOptions& options) {
    const std::string message = lockstep::testing::message_of<InvalidArgument>(
        [&] { write_synthetic_set(name, at("refused"), options); });
    EXPECT_FALSE(fs::exists(at("refused")));
    return message;
  }

  lockstep::testing::TemporaryFolder directory_;
};

std::vector<std::string> lines_of(const fs::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

/// Compares every sample with the image that it must be.
void expect_drawn(const InMemoryImages& set, std::int64_t size, bool train) {
  EXPECT_EQ(set.size(), size);
  const auto& shape = set.shape();
  for (std::int64_t index = 0; index < set.size(); ++index) {
    const Image image = synthetic_image(synthetic_class(index % set.classes(), set.classes()),
        {.seed = 4, .train = train, .index = index}, {shape.width, shape.height}, shape.channels);
    EXPECT_EQ(set.label(index), index % set.classes());
    EXPECT_TRUE(std::equal(image.pixels.begin(), image.pixels.end(), set.pixels(index)));
  }
}

TEST_F(SyntheticSet, IsReadAsMnist) {
  for (const bool gzip : {false, true}) {
    const auto folder = at(gzip ? "packed" : "plain");
    const auto summary =
        write_synthetic_set("mnist", folder, {.train = 50, .test = 21, .seed = 4, .gzip = gzip});
    EXPECT_EQ(summary.files, 4);
    EXPECT_EQ(summary.classes, 10);
    expect_drawn(mnist(folder, true), 50, true);
    expect_drawn(mnist(folder, false), 21, false);
  }
  EXPECT_TRUE(fs::exists(at("packed") / "t10k-labels-idx1-ubyte.gz"));
}

TEST_F(SyntheticSet, IsReadAsCifar10) {
  const auto summary =
      write_synthetic_set("cifar10", at("set"), {.train = 52, .test = 20, .seed = 4});
  EXPECT_EQ(
      summary.bytes, 72U * 3073 + fs::file_size(at("set/cifar-10-batches-bin/batches.meta.txt")));
  expect_drawn(cifar10(at("set"), true), 52, true);
  expect_drawn(cifar10(at("set"), false), 20, false);
  EXPECT_EQ(lines_of(at("set/cifar-10-batches-bin/batches.meta.txt")).at(4), "triangle");
}

TEST_F(SyntheticSet, IsReadAsCifar100) {
  write_synthetic_set("cifar100", at("set"), {.train = 250, .test = 100, .seed = 4});
  expect_drawn(cifar100(at("set"), true), 250, true);
  const auto inner = at("set") / "cifar-100-binary";
  EXPECT_EQ(lines_of(inner / "fine_label_names.txt").at(57), "bar-blotches");
  EXPECT_EQ(lines_of(inner / "coarse_label_names.txt").at(15), "bar-blotches-to-slope");
}

TEST_F(SyntheticSet, GroupsTheClassesOfCifar100ByFives) {
  write_synthetic_set("cifar100", at("set"), {.train = 100, .test = 100});
  const std::vector<fs::path> files{at("set") / "cifar-100-binary" / "test.bin"};
  const auto images = read_cifar(files, CifarVariant::kCifar100);
  std::vector<int> members(20);
  for (const auto coarse : images.coarse_labels) ++members.at(coarse);
  EXPECT_THAT(members, ::testing::Each(5));
  EXPECT_EQ(int{images.labels[57]}, 57);
  EXPECT_EQ(int{images.coarse_labels[57]}, 15);
}

TEST_F(SyntheticSet, IsReadAsFoldersOfImages) {
  const auto summary =
      write_synthetic_set("images", at("set"), {.train = 33, .test = 8, .classes = 3, .seed = 4});
  EXPECT_EQ(summary.files, 41);
  const auto folders = open_image_folders(at("set"));
  ASSERT_TRUE(folders.validation);
  EXPECT_EQ(folders.train.size(), 33);
  EXPECT_EQ(folders.validation->size(), 8);
  EXPECT_THAT(folders.train.class_names(), ElementsAre("disc", "ring", "square"));
  std::set<std::int64_t> widths;
  int pngs = 0;
  for (std::int64_t i = 0; i < folders.train.size(); ++i) {
    const auto bytes = folders.train.open(i);
    const ImageReader reader(bytes, folders.train.name(i));
    pngs += reader.info().kind == ImageKind::kPng ? 1 : 0;
    EXPECT_GE(std::min(reader.size().width, reader.size().height), 160);
    EXPECT_LE(std::max(reader.size().width, reader.size().height), 480);
    EXPECT_EQ(reader.read().size, reader.size());
    widths.insert(reader.size().width);
  }
  EXPECT_EQ(pngs, 3);
  EXPECT_GT(widths.size(), 15U);
}

TEST_F(SyntheticSet, HasImagesOfTheSizeThatIsAskedFor) {
  write_synthetic_set("images", at("set"),
      {.train = 16, .test = 2, .classes = 2, .size = ImageSize{40, 30}, .seed = 4});
  const ImageFolder train(at("set") / "train");
  for (std::int64_t i = 0; i < train.size(); ++i) {
    const auto image = decode_image(train.open(i), train.name(i));
    EXPECT_EQ(image.size, (ImageSize{40, 30}));
  }
  // A PNG keeps every bit: the eighth of its class.
  std::ifstream file(at("set") / "train" / "disc" / "000014.png", std::ios::binary);
  const std::vector<std::uint8_t> bytes(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(decode_image(bytes, "000014.png").pixels,
      synthetic_image(synthetic_class(0, 2), {.seed = 4, .index = 14}, {40, 30}, 3).pixels);
}

TEST_F(SyntheticSet, TellsHowFarItIs) {
  std::int64_t last = 0;
  SyntheticOptions options{.train = 5, .test = 2};
  options.progress = [&](std::int64_t done, std::int64_t of) {
    EXPECT_EQ(done, ++last);
    EXPECT_EQ(of, 7);
  };
  write_synthetic_set("fashion-mnist", at("set"), options);
  EXPECT_EQ(last, 7);
}

TEST_F(SyntheticSet, RefusesWhatCannotBe) {
  EXPECT_EQ(refusal("imagenet", {}),
      "synthesize: there is no set imagenet; there are mnist, fashion-mnist, cifar10, cifar100, "
      "images");
  EXPECT_THAT(
      refusal("mnist", {.train = 0}), HasSubstr("--train of mnist must be 1 to 1369568: 0"));
  EXPECT_THAT(refusal("cifar10", {.train = 4}), HasSubstr("--train of cifar10 must be 5 to"));
  EXPECT_THAT(refusal("cifar10", {.test = -1}), HasSubstr("--test of cifar10 must be 1 to"));
  EXPECT_THAT(
      refusal("images", {.train = 19}), HasSubstr("--train of images must be 20 to 10000000: 19"));
  EXPECT_THAT(refusal("cifar100", {.classes = 10}), HasSubstr("--classes is for images"));
  EXPECT_THAT(refusal("images", {.classes = 101}), HasSubstr("--classes must be 2 to 100: 101"));
  EXPECT_THAT(refusal("images", {.classes = 1}), HasSubstr("--classes must be 2 to 100: 1"));
  EXPECT_THAT(refusal("mnist", {.size = ImageSize{32, 32}}), HasSubstr("--size is for images"));
  EXPECT_THAT(
      refusal("images", {.size = ImageSize{32, 7}}), HasSubstr("sides of 8 to 4096 pixels: 32x7"));
  EXPECT_THAT(refusal("cifar10", {.gzip = true}), HasSubstr("--gzip is for mnist"));
}

TEST_F(SyntheticSet, LeavesWhatIsThere) {
  fs::create_directory(at("set"));
  std::ofstream(at("set") / "mine") << "x";
  EXPECT_THROW(write_synthetic_set("mnist", at("set"), {.train = 1, .test = 1}), InvalidArgument);
  EXPECT_EQ(std::distance(fs::directory_iterator(at("set")), {}), 1);
}

TEST_F(SyntheticSet, LeavesNothingIfTheDiskIsFull) {
  const lockstep::testing::FileSizeLimit limit(10'000);
  EXPECT_THROW(
      write_synthetic_set("mnist", at("set"), {.train = 20, .test = 1}), std::system_error);
  EXPECT_TRUE(fs::is_empty(directory_.path()));
}

}  // namespace
}  // namespace lockstep::data
