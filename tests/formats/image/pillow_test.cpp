// Pillow's pixels are those of tests/conformance/images.py, which says how they are made.

#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <zlib.h>

#include "tests/formats/image/image_bytes.h"

#include "lockstep/formats/image/image_reader.h"

namespace lockstep {
namespace {

using testing::Bytes;

struct Expected {
  std::string file;
  bool is_turned = false;
  ImageSize size;
  std::uint32_t checksum = 0;
};

std::string path_of(const std::string& name) {
  return std::string(LOCKSTEP_PILLOW_IMAGES) + "/" + name;
}

std::vector<Expected> expected_pixels() {
  std::ifstream file(path_of("pixels.csv"));
  std::vector<Expected> lines;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream text(line);
    Expected entry;
    text >> entry.file >> entry.is_turned >> entry.size.width >> entry.size.height >> std::hex >>
        entry.checksum;
    EXPECT_FALSE(text.fail()) << line;
    lines.push_back(entry);
  }
  return lines;
}

TEST(Pillow, GivesTheSamePixels) {
  const auto entries = expected_pixels();
  EXPECT_EQ(entries.size(), 128U);
  for (const auto& entry : entries) {
    SCOPED_TRACE(entry.file);
    const Bytes bytes = testing::file_bytes(path_of(entry.file));
    const auto image =
        decode_image(bytes, entry.file, {.apply_orientation = entry.is_turned, .limits = {}});
    EXPECT_EQ(image.size, entry.size);
    EXPECT_EQ(image.channels, 3);
    EXPECT_EQ(crc32_z(0, image.pixels.data(), image.pixels.size()), entry.checksum);
  }
}

TEST(Pillow, ItsFilesAreDescribedByTheirHeaders) {
  const auto info = [](const std::string& name) {
    return ImageReader(testing::file_bytes(path_of(name)), name).info();
  };
  EXPECT_EQ(info("jpeg-420.jpg").kind, ImageKind::kJpeg);
  EXPECT_EQ(info("jpeg-420.jpg").size, (ImageSize{45, 35}));
  EXPECT_EQ(info("jpeg-420.jpg").channels, 3);
  EXPECT_EQ(info("jpeg-grey.jpg").channels, 1);
  EXPECT_EQ(info("jpeg-ycck.jpg").channels, 4);
  EXPECT_EQ(info("png-type0-16.png").kind, ImageKind::kPng);
  EXPECT_EQ(info("png-pillow-LA.png").channels, 2);
  EXPECT_EQ(info("png-pillow-P.png").channels, 1);
  EXPECT_EQ(info("png-pillow-RGBA.png").channels, 4);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const auto turned = info("exif-" + std::to_string(orientation) + ".jpg");
    EXPECT_EQ(turned.orientation, orientation);
    EXPECT_FALSE(turned.exif_is_damaged);
    EXPECT_EQ(turned.size, (orientation < 5 ? ImageSize{21, 10} : ImageSize{10, 21}));
  }
  EXPECT_EQ(info("exif-6.png").size, (ImageSize{8, 11}));
}

}  // namespace
}  // namespace lockstep
