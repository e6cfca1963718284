#include <gtest/gtest.h>

#include "tests/formats/image/image_bytes.h"
#include "tests/support/message_of.h"

#include "lockstep/formats/image/image_file.h"
#include "lockstep/formats/image/image_reader.h"

namespace lockstep {
namespace {

using testing::Bytes;
using testing::bytes_of;

std::string refusal(const std::string& text) {
  return testing::message_of<DataError>([&] { image_kind(bytes_of(text), "cat.jpg"); });
}

std::string is_no_image(const std::string& kind) {
  return "cat.jpg: offset 0: not a JPEG or PNG image: the file is " + kind +
         "; convert or remove it";
}

TEST(ImageKind, IsFoundByTheContent) {
  EXPECT_EQ(image_kind(testing::jpeg(), "cat.png"), ImageKind::kJpeg);
  EXPECT_EQ(image_kind(testing::png(), "cat.jpg"), ImageKind::kPng);
  EXPECT_EQ(decode_image(testing::png(), "cat.jpg").pixels, testing::picture({45, 35}).pixels);
}

TEST(ImageKind, AnEmptyFileIsRefused) {
  EXPECT_EQ(refusal(""), "cat.jpg: offset 0: the file is empty");
}

TEST(ImageKind, OtherKindsAreNamed) {
  EXPECT_EQ(refusal("GIF89a..."), is_no_image("a GIF image"));
  EXPECT_EQ(refusal(std::string("RIFF\x10\0\0\0WEBPVP8 ", 16)), is_no_image("a WebP image"));
  EXPECT_EQ(refusal(std::string("\0\0\0\x1c"
                                "ftypavif",
                12)),
      is_no_image("an AVIF image"));
  EXPECT_EQ(refusal(std::string("II*\0....", 8)), is_no_image("a TIFF image"));
  EXPECT_EQ(refusal(std::string("BM\x10\0\0\0", 6)), is_no_image("a BMP image"));
  EXPECT_EQ(refusal("\x1f\x8b\x08"), is_no_image("gzip"));
  EXPECT_EQ(refusal("hello"), is_no_image("text"));
  EXPECT_EQ(refusal("\n <!DOCTYPE html><html>404"), is_no_image("an HTML page"));
  EXPECT_EQ(refusal("<svg xmlns="), is_no_image("XML or an SVG image"));
  EXPECT_EQ(refusal(std::string("\x01\x02\0", 3)), is_no_image("of an unknown kind"));
  EXPECT_EQ(refusal(std::string(100, '\0')), is_no_image("of an unknown kind"));
  EXPECT_EQ(refusal("\xff\xd8"), is_no_image("text"));
}

}  // namespace
}  // namespace lockstep
