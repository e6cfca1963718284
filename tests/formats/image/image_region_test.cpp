// A part of an image is the same part of the whole image, bit by bit.

#include <filesystem>
#include <random>

#include <gtest/gtest.h>

#include "lockstep/formats/image/image_reader.h"

#include "tests/formats/image/image_bytes.h"

namespace lockstep {
namespace {

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
  for (const Box& box :
       {Box{0, 0, 11, 1}, Box{0, 0, 1, 9}, Box{-1, 0, 2, 2}, Box{0, -1, 2, 2}, Box{9, 7, 2, 1},
        Box{9, 7, 1, 2}, Box{0, 0, 0, 1}, Box{0, 0, 1, 0}, Box{INT64_MAX, 0, 1, 1},
        Box{0, 0, INT64_MAX, 1}}) {
    EXPECT_THROW(reader.read(box), InvalidArgument) << box.left << ", " << box.top;
  }
}

}  // namespace
}  // namespace lockstep
