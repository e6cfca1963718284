#include "lockstep/formats/image/image.h"

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "tests/formats/image/image_bytes.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/image/image_reader.h"

// A part of an image is the same part of the whole image, bit by bit.

namespace lockstep {
namespace {

using ::testing::ElementsAre;

const Image kImage{{3, 2}, 2, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}};

TEST(Image, OfASizeIsBlack) {
  const Image image = Image::of_size({3, 2});
  EXPECT_EQ(image.pixels, std::vector<std::uint8_t>(18, 0));
  EXPECT_THROW(Image::of_size({0, 2}), InvalidArgument);
  EXPECT_THROW(Image::of_size({3, 0}), InvalidArgument);
  EXPECT_THROW(Image::of_size({3, 2}, 0), InvalidArgument);
}

TEST(Image, IsCroppedPixelByPixel) {
  const Image part = crop(kImage.view(), {1, 0, 2, 2});
  EXPECT_EQ(part.size, (ImageSize{2, 2}));
  EXPECT_EQ(part.channels, 2);
  EXPECT_THAT(part.pixels, ElementsAre(3, 4, 5, 6, 9, 10, 11, 12));
  EXPECT_EQ(crop(kImage.view(), {0, 0, 3, 2}).pixels, kImage.pixels);
}

TEST(Image, IsNotCroppedBeyondItsEdges) {
  for (const Box& box :
      {Box{0, 0, 4, 1}, {2, 0, 2, 1}, {0, 1, 1, 2}, {-1, 0, 1, 1}, {0, -1, 1, 1}, {0, 0, 0, 1}}) {
    EXPECT_THROW(crop(kImage.view(), box), InvalidArgument);
  }
}

TEST(Image, MustHaveTheBytesOfItsSize) {
  check_holds_its_pixels(kImage.view());
  EXPECT_THROW(check_holds_its_pixels(Image{{3, 2}, 3, kImage.pixels}.view()), InvalidArgument);
  EXPECT_THROW(check_holds_its_pixels(Image{{0, 0}, 3, {}}.view()), InvalidArgument);
}

using testing::Bytes;

class Boxes {
 public:
  explicit Boxes(ImageSize size) : size_(size) {}

  /// Draws a box; one in four touches the right or the lower edge.
  Box next() {
    Box box{below(size_.width), below(size_.height), 0, 0};
    box.width = 1 + below(size_.width - box.left);
    box.height = 1 + below(size_.height - box.top);
    if (below(4) == 0) box.width = size_.width - box.left;
    if (below(4) == 0) box.height = size_.height - box.top;
    return box;
  }

 private:
  std::int64_t below(std::int64_t bound) {
    return std::uniform_int_distribution<std::int64_t>(0, bound - 1)(engine_);
  }

  ImageSize size_;
  std::mt19937 engine_{1};
};

void expect_parts_of_the_whole(const Bytes& bytes, const std::string& name, int count) {
  const ImageReader reader(bytes, name);
  const Image whole = reader.read();
  EXPECT_EQ(whole.size, reader.size());
  Boxes boxes(whole.size);
  Image part;
  for (int i = 0; i < count && !::testing::Test::HasFailure(); ++i) {
    const Box box = boxes.next();
    SCOPED_TRACE(concat(name, ": ", box.width, " x ", box.height, " at ", box.left, ", ", box.top));
    reader.read(box, part);
    const Image expected = crop(whole.view(), box);
    EXPECT_EQ(part.size, expected.size);
    EXPECT_TRUE(part.pixels == expected.pixels);
  }
}

TEST(ImageRegion, OfEverySubsamplingOfJpeg) {
  for (const int horizontal : {1, 2, 4}) {
    for (const int vertical : {1, 2}) {
      for (const bool progressive : {false, true}) {
        for (const int restart_rows : {0, 1}) {
          const JpegOptions options{90, horizontal, vertical, progressive, restart_rows};
          const auto name = concat(
              horizontal, "x", vertical, " progressive ", progressive, " restart ", restart_rows);
          expect_parts_of_the_whole(testing::jpeg({101, 83}, options), name, 100);
          expect_parts_of_the_whole(testing::jpeg({64, 48}, options), name, 50);
          expect_parts_of_the_whole(testing::jpeg({7, 5}, options), name, 20);
        }
      }
    }
  }
}

TEST(ImageRegion, OfGreyJpeg) {
  expect_parts_of_the_whole(encode_jpeg(testing::picture({77, 53}, 1).view()), "grey", 100);
}

TEST(ImageRegion, OfProgressiveJpegWhoseLastScansAreMissing) {
  Bytes bytes = testing::jpeg({101, 83}, {.progressive = true});
  // Cut before the last scan but three: what is missing is smoothed over.
  std::size_t at = bytes.size();
  for (int scans = 0; scans < 4; ++scans) {
    do --at;
    while (bytes[at] != 0xff || bytes[at + 1] != 0xda);
  }
  bytes.resize(at);
  testing::append(bytes, {0xff, 0xd9});
  expect_parts_of_the_whole(bytes, "cut between scans", 100);
}

TEST(ImageRegion, OfEveryFileThatPillowMade) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_PILLOW_IMAGES)) {
    if (entry.path().extension() == ".csv") continue;
    expect_parts_of_the_whole(
        testing::file_bytes(entry.path()), entry.path().filename().string(), 40);
    ++files;
  }
  EXPECT_EQ(files, 64);
}

TEST(ImageRegion, ThatLeavesTheImageIsRefused) {
  const Bytes bytes = testing::png({10, 8});
  const ImageReader reader(bytes, "FILE");
  for (const Box& box : {Box{0, 0, 11, 1}, Box{0, 0, 1, 9}, Box{-1, 0, 2, 2}, Box{0, -1, 2, 2},
           Box{9, 7, 2, 1}, Box{9, 7, 1, 2}, Box{0, 0, 0, 1}, Box{0, 0, 1, 0},
           Box{INT64_MAX, 0, 1, 1}, Box{0, 0, INT64_MAX, 1}}) {
    EXPECT_THROW(reader.read(box), InvalidArgument) << box.left << ", " << box.top;
  }
}

}  // namespace

}  // namespace lockstep
