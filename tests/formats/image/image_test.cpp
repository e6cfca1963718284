#include "lockstep/formats/image/image.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <sstream>
#include <zlib.h>

#include "tests/formats/image/image_bytes.h"
#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/image/image_reader.h"
#include "lockstep/formats/image/jpeg.h"
#include "lockstep/formats/image/png.h"

namespace lockstep {
namespace {

using namespace std::string_literals;
using testing::Bytes;
using testing::bytes_of;
using ::testing::ElementsAre;
using testing::exif;
using testing::picture;

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

// A part of an image is the same part of the whole image, bit by bit.
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

std::string refusal(const std::string& text) {
  return testing::message_of<DataError>([&] { image_kind(bytes_of(text), "cat.jpg"); });
}

TEST(ImageKind, IsFoundByTheContent) {
  EXPECT_EQ(image_kind(testing::jpeg(), "cat.png"), ImageKind::kJpeg);
  EXPECT_EQ(image_kind(testing::png(), "cat.jpg"), ImageKind::kPng);
  EXPECT_EQ(decode_image(testing::png(), "cat.jpg").pixels, testing::picture({45, 35}).pixels);
}

TEST(ImageKind, OtherKindsAreNamed) {
  EXPECT_EQ(refusal(""), "cat.jpg: offset 0: the file is empty");
  for (const auto& [text, kind] : std::vector<std::pair<std::string, std::string>>{
           {"GIF89a...", "a GIF image"}, {"RIFF\x10\0\0\0WEBPVP8 "s, "a WebP image"},
           {"\0\0\0\x1c"s + "ftypavif", "an AVIF image"}, {"II*\0...."s, "a TIFF image"},
           {"BM\x10\0\0\0"s, "a BMP image"}, {"\x1f\x8b\x08", "gzip"}, {"hello", "text"},
           {"\n <!DOCTYPE html><html>404", "an HTML page"}, {"<svg xmlns=", "XML or an SVG image"},
           {"\x01\x02\0"s, "of an unknown kind"}, {std::string(100, '\0'), "of an unknown kind"},
           {"\xff\xd8", "text"}}) {
    EXPECT_EQ(refusal(text), "cat.jpg: offset 0: not a JPEG or PNG image: the file is " + kind +
                                 "; convert or remove it");
  }
}

double mean_difference(const Image& a, const Image& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.pixels.size(); ++i) sum += std::abs(a.pixels[i] - b.pixels[i]);
  return sum / static_cast<double>(a.pixels.size());
}

Image smooth(ImageSize size) {
  Image image = Image::of_size(size);
  for (std::int64_t y = 0; y < size.height; ++y) {
    for (std::int64_t x = 0; x < size.width * 3; ++x) {
      image.row(y)[x] = static_cast<std::uint8_t>(x + y);
    }
  }
  return image;
}

TEST(ImageEncoder, PngGivesTheSamePixelsBack) {
  const Image colour = picture({31, 17});
  EXPECT_EQ(decode_image(encode_png(colour.view()), "FILE").pixels, colour.pixels);
  const Image with_alpha = picture({31, 17}, 4);
  EXPECT_EQ(decode_image(encode_png(with_alpha.view()), "FILE").pixels, colour.pixels);
  for (const std::int64_t channels : {1, 2}) {
    const Image grey = picture({31, 17}, channels);
    const Image read = decode_image(encode_png(grey.view()), "FILE");
    for (std::size_t pixel = 0; pixel < 31 * 17; ++pixel) {
      const auto value = grey.pixels[pixel * static_cast<std::size_t>(channels)];
      for (std::size_t c = 0; c < 3; ++c) ASSERT_EQ(read.pixels[pixel * 3 + c], value);
    }
  }
}

TEST(ImageEncoder, JpegGivesNearlyTheSamePixelsBack) {
  const Image image = smooth({60, 40});
  const JpegOptions best{.quality = 100, .horizontal_subsampling = 1, .vertical_subsampling = 1};
  EXPECT_LT(mean_difference(decode_image(encode_jpeg(image.view(), best), "FILE"), image), 1);
  EXPECT_LT(mean_difference(decode_image(encode_jpeg(image.view()), "FILE"), image), 5);
  const auto poor = encode_jpeg(image.view(), {.quality = 5});
  EXPECT_LT(poor.size(), encode_jpeg(image.view()).size());
  EXPECT_EQ(ImageReader(encode_jpeg(picture({9, 9}, 1).view()), "FILE").info().channels, 1);
}

TEST(ImageEncoder, JpegIsMadeAsAsked) {
  const auto progressive = testing::jpeg({40, 40}, {.progressive = true});
  EXPECT_EQ(progressive.at(testing::find_segment(progressive, 0xc2) + 1), 0xc2);
  const auto restarts = testing::jpeg({40, 40}, {.restart_rows = 1});
  EXPECT_EQ(restarts.at(testing::find_segment(restarts, 0xdd) + 1), 0xdd);
  const auto sampled =
      testing::jpeg({40, 40}, {.horizontal_subsampling = 4, .vertical_subsampling = 1});
  EXPECT_EQ(sampled.at(testing::find_segment(sampled, 0xc0) + 11), 0x41);
}

TEST(ImageEncoder, RefusesWhatTheFormatsCannotHold) {
  const Image image = picture({4, 4});
  EXPECT_THROW(encode_jpeg(picture({4, 4}, 4).view()), InvalidArgument);
  EXPECT_THROW(encode_jpeg(picture({4, 4}, 2).view()), InvalidArgument);
  for (const JpegOptions& options : {JpegOptions{.quality = 0}, {.quality = 101},
           {.horizontal_subsampling = 3}, {.vertical_subsampling = 4}, {.restart_rows = -1}}) {
    EXPECT_THROW(encode_jpeg(image.view(), options), InvalidArgument);
  }
  EXPECT_THROW(encode_jpeg(Image::of_size({65'501, 1}).view()), InvalidArgument);
  EXPECT_THROW(encode_png(Image::of_size({4, 4}, 5).view()), InvalidArgument);
  EXPECT_THROW(encode_png(Image{{4, 4}, 3, {1, 2, 3}}.view()), InvalidArgument);
  EXPECT_THROW(encode_jpeg(Image{{4, 4}, 3, {1, 2, 3}}.view()), InvalidArgument);
  EXPECT_THROW(encode_png(Image{{0, 0}, 3, {}}.view()), InvalidArgument);
}

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

// Pillow's pixels are those of tests/conformance/images.py, which says how they are made.
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
  const auto size = [](const std::string& name) {
    return ImageReader(testing::file_bytes(path_of(name)), name).size();
  };
  EXPECT_EQ(info("jpeg-420.jpg").kind, ImageKind::kJpeg);
  EXPECT_EQ(size("jpeg-420.jpg"), (ImageSize{45, 35}));
  EXPECT_EQ(info("jpeg-420.jpg").channels, 3);
  EXPECT_EQ(info("jpeg-grey.jpg").channels, 1);
  EXPECT_EQ(info("jpeg-ycck.jpg").channels, 4);
  EXPECT_EQ(info("png-type0-16.png").kind, ImageKind::kPng);
  EXPECT_EQ(info("png-pillow-LA.png").channels, 2);
  EXPECT_EQ(info("png-pillow-P.png").channels, 1);
  EXPECT_EQ(info("png-pillow-RGBA.png").channels, 4);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const std::string name = "exif-" + std::to_string(orientation) + ".jpg";
    EXPECT_EQ(info(name).exif.value, orientation);
    EXPECT_FALSE(info(name).exif.is_damaged);
    EXPECT_EQ(size(name), (orientation < 5 ? ImageSize{21, 10} : ImageSize{10, 21}));
  }
  EXPECT_EQ(size("exif-6.png"), (ImageSize{8, 11}));
}

//  stored: 1 2 3
//          4 5 6
const Image kStored{{3, 2}, 1, {1, 2, 3, 4, 5, 6}};

TEST(Orientation, TurnsAsTheDrawnTable) {
  const std::vector<Bytes> drawn{{1, 2, 3, 4, 5, 6}, {3, 2, 1, 6, 5, 4}, {6, 5, 4, 3, 2, 1},
      {4, 5, 6, 1, 2, 3}, {1, 4, 2, 5, 3, 6}, {4, 1, 5, 2, 6, 3}, {6, 3, 5, 2, 4, 1},
      {3, 6, 2, 5, 1, 4}};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const Image image = turned(kStored.view(), orientation);
    const ImageSize size = orientation < 5 ? ImageSize{3, 2} : ImageSize{2, 3};
    EXPECT_EQ(image.pixels, drawn[static_cast<std::size_t>(orientation) - 1]) << orientation;
    EXPECT_EQ(image.size, size);
    EXPECT_EQ(oriented_size({3, 2}, orientation), size);
  }
}

TEST(Orientation, FindsTheStoredPartOfEveryTurnedPart) {
  const Image stored = testing::picture({7, 5}, 1);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const Image whole = turned(stored.view(), orientation);
    for (std::int64_t left = 0; left < whole.size.width; ++left) {
      for (std::int64_t top = 0; top < whole.size.height; ++top) {
        const Box box{left, top, whole.size.width - left, (whole.size.height - top + 1) / 2};
        const Box part = stored_box(box, stored.size, orientation);
        EXPECT_EQ(turned(crop(stored.view(), part).view(), orientation).pixels,
            crop(whole.view(), box).pixels);
      }
    }
  }
}

TEST(Orientation, OfColourKeepsPixelsTogether) {
  const Image colour{{2, 1}, 3, {1, 2, 3, 4, 5, 6}};
  EXPECT_THAT(turned(colour.view(), 2).pixels, ElementsAre(4, 5, 6, 1, 2, 3));
}

TEST(Orientation, IsAppliedUnlessItIsTurnedOff) {
  const auto bytes = testing::with_segment(
      testing::jpeg({24, 16}), 0xe1, testing::exif_segment_content(testing::exif(6)));
  const ImageReader reader(bytes, "FILE");
  const ImageReader raw(bytes, "FILE", {.apply_orientation = false});
  EXPECT_EQ(reader.size(), (ImageSize{16, 24}));
  EXPECT_EQ(raw.size(), (ImageSize{24, 16}));
  EXPECT_EQ(raw.info().exif.value, 6);
  EXPECT_EQ(reader.read().pixels, turned(raw.read().view(), 6).pixels);
}

TEST(Orientation, OtherNumbersAreRefused) {
  EXPECT_THROW(turned(kStored.view(), 0), InvalidArgument);
  EXPECT_THROW(oriented_size({3, 2}, 9), InvalidArgument);
}

TEST(Exif, GivesTheOrientationInBothByteOrders) {
  for (int value = 1; value <= 8; ++value) {
    for (const bool is_little : {true, false}) {
      const auto orientation = exif_orientation(exif(value, is_little));
      EXPECT_EQ(orientation.value, value);
      EXPECT_FALSE(orientation.is_damaged);
    }
  }
}

// Pillow applies it whatever whole number it is.
TEST(Exif, TakesWholeNumbersOfEveryType) {
  const Bytes little = exif(6), big = exif(6, false);
  for (const int type : {4, 8, 9}) {
    Bytes bytes = little;
    bytes[12] = static_cast<std::uint8_t>(type);
    EXPECT_EQ(exif_orientation(bytes).value, 6) << type;
    bytes = big;
    bytes[13] = static_cast<std::uint8_t>(type);
    if (type != 8) std::swap(bytes[19], bytes[21]);  // four bytes
    EXPECT_EQ(exif_orientation(bytes).value, 6) << type;
  }
}

TEST(Exif, WithoutTheTagIsUpright) {
  Bytes other_tag = exif(6);
  other_tag[10] = 0x13;
  EXPECT_EQ(exif_orientation(other_tag).value, 1);
  EXPECT_FALSE(exif_orientation(other_tag).is_damaged);
  EXPECT_FALSE(exif_orientation(Bytes{'I', 'I', 42, 0, 8, 0, 0, 0, 0, 0}).is_damaged);
}

TEST(Exif, FindsTheTagBehindOthers) {
  Bytes bytes = exif(6);
  bytes[8] = 2;
  bytes = testing::inserted(bytes, 10, {0x0f, 1, 2, 0, 4, 0, 0, 0, 'a', 'b', 'c', 0});
  EXPECT_EQ(exif_orientation(bytes).value, 6);
}

TEST(Exif, WhatBreaksItsFormIsDamagedAndUpright) {
  const auto expect_damaged = [](const Bytes& bytes) {
    const auto orientation = exif_orientation(bytes);
    EXPECT_TRUE(orientation.is_damaged);
    EXPECT_EQ(orientation.value, 1);
  };
  const Bytes whole = exif(6);
  for (std::size_t size = 0; size < 20; ++size) {
    SCOPED_TRACE(size);  // the two bytes that fill up the value need not be there
    expect_damaged(testing::cut(whole, size));
  }
  const auto with = [&](std::size_t at, std::uint8_t byte) {
    Bytes bytes = whole;
    bytes[at] = byte;
    return bytes;
  };
  expect_damaged(with(0, 'X'));
  expect_damaged(with(1, 'M'));
  expect_damaged(with(2, 43));
  expect_damaged(with(7, 0xff));  // the directory lies outside
  expect_damaged(with(12, 2));    // no number
  expect_damaged(with(14, 2));    // two values
  expect_damaged(with(18, 0));
  expect_damaged(with(18, 9));
  expect_damaged(with(19, 1));
  Bytes many = with(10, 0x11);
  many[8] = 200;  // more entries than bytes
  expect_damaged(many);
}

}  // namespace
}  // namespace lockstep
