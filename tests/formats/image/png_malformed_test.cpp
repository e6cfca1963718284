#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/formats/image/image_bytes.h"
#include "tests/support/message_of.h"

#include "lockstep/formats/image/image_reader.h"

namespace lockstep {
namespace {

using testing::append;
using testing::Bytes;
using testing::bytes_of;
using testing::chunk;
using ::testing::HasSubstr;
using testing::png;
using testing::png_file;
using testing::png_header;
using ::testing::StartsWith;
using testing::with_chunk;

constexpr std::size_t kMebibyte = 1 << 20;

std::string fault(const Bytes& bytes) {
  return testing::message_of<DataError>([&] { decode_image(bytes, "FILE"); });
}

std::string fault_of_part(const Bytes& bytes) {
  return testing::message_of<DataError>([&] { ImageReader(bytes, "FILE").read({0, 0, 2, 1}); });
}

/// Makes rows of 2 grey pixels, each with its filter byte.
Bytes grey_rows(std::size_t rows) { return Bytes(3 * rows, 0); }

TEST(PngMalformed, CutAtEveryByteIsRefused) {
  const Bytes whole = png({24, 16});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const Bytes part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_THAT(fault(part), StartsWith("FILE: offset ")) << size;
    EXPECT_THAT(fault_of_part(part), StartsWith("FILE: offset ")) << size;
  }
}

TEST(PngMalformed, CutInItsPixelsNamesTheChunk) {
  const Bytes whole = png({24, 16});
  constexpr std::size_t kEndChunk = 12;
  for (std::size_t missing = 1; missing <= 20; ++missing) {
    Bytes bytes = whole;
    bytes.resize(whole.size() - kEndChunk - missing);
    EXPECT_THAT(fault(bytes), StartsWith("FILE: offset 46: the file ends inside a PNG chunk IDAT"));
  }
  Bytes bytes = whole;
  bytes.resize(whole.size() - 1);
  EXPECT_THAT(fault(bytes), HasSubstr("the file ends before its IEND chunk: it was cut"));
}

TEST(PngMalformed, AWrongChecksumNamesItsChunk) {
  const Bytes whole = with_chunk(png({24, 16}), "tEXt", bytes_of(std::string("Author\0me", 9)));
  for (std::size_t at = 8; at < whole.size();) {
    const std::size_t length = static_cast<std::size_t>(whole[at + 2] << 8 | whole[at + 3]);
    const std::string type(whole.begin() + static_cast<std::ptrdiff_t>(at) + 4,
        whole.begin() + static_cast<std::ptrdiff_t>(at) + 8);
    Bytes bytes = whole;
    bytes[at + 8 + length] ^= 1;
    const std::string expected = concat("FILE: offset ", at, ": the checksum of the PNG chunk ",
        type, " is wrong: the file is damaged");
    EXPECT_EQ(fault(bytes), expected);
    EXPECT_EQ(fault_of_part(bytes), expected);
    at += 12 + length;
  }
}

TEST(PngMalformed, ChunksThatLeaveTheFileAreRefused) {
  Bytes bytes = png({24, 16});
  bytes[33] = 0x7f;
  EXPECT_THAT(fault(bytes), StartsWith("FILE: offset 33: the file ends inside a PNG chunk "));
  bytes[33] = 0xff;
  EXPECT_THAT(fault(bytes), StartsWith("FILE: offset 33: the file ends inside a PNG chunk "));
  bytes = png({24, 16});
  bytes[38] = '1';
  EXPECT_THAT(fault(bytes), HasSubstr("offset 37: the type of a PNG chunk is not made of letters"));
}

TEST(PngMalformed, HeadersThatCannotBeAreRefused) {
  const auto with_header = [](const Bytes& header) { return png_file(header, {}, grey_rows(2)); };
  EXPECT_EQ(decode_image(with_header(png_header(2, 2, 8, 0)), "FILE").size, (ImageSize{2, 2}));
  EXPECT_EQ(
      fault(with_header(png_header(0, 2))), "FILE: offset 16: the image of 0 x 2 pixels is empty");
  EXPECT_EQ(
      fault(with_header(png_header(2, 0))), "FILE: offset 16: the image of 2 x 0 pixels is empty");
  EXPECT_THAT(fault(with_header(png_header(16'385, 1, 1, 0))),
      HasSubstr("offset 16: the image of 16385 x 1 pixels has a side above the limit of 16384"));
  EXPECT_THAT(fault(with_header(png_header(16'384, 16'384, 1, 0))),
      HasSubstr("has more pixels than the limit of 67108864"));
  EXPECT_THAT(
      fault(with_header(png_header(0xffffffff, 0xffffffff))), HasSubstr("has a side above"));
  EXPECT_THAT(fault(with_header(png_header(2, 2, 8, 5))),
      HasSubstr("offset 25: the colour type of the PNG image is 5"));
  EXPECT_THAT(fault(with_header(png_header(2, 2, 16, 3))),
      HasSubstr("offset 24: a PNG image of colour type 3 cannot have 16 bits a sample"));
  EXPECT_THAT(fault(with_header(png_header(2, 2, 4, 2))), HasSubstr("cannot have 4 bits a sample"));
  EXPECT_THAT(fault(with_header(png_header(2, 2, 3, 0))), HasSubstr("cannot have 3 bits a sample"));
  EXPECT_THAT(fault(with_header(png_header(2, 2, 8, 0, 2))),
      HasSubstr("compressed, filtered or interlaced in an unknown way"));
  EXPECT_THAT(fault(with_header(chunk("IDAT", {}))),
      HasSubstr("offset 8: the first chunk of the PNG image is not an IHDR of 13 bytes"));
}

TEST(PngMalformed, UnknownMethodsAreRefused) {
  for (const std::size_t method : {26U, 27U}) {  // of compression and of filtering
    Bytes bytes = png({24, 16});
    bytes[method] = 1;
    EXPECT_THAT(fault(testing::with_true_checksums(bytes)),
        HasSubstr("offset 26: the PNG image is compressed, filtered or interlaced in an unknown"));
  }
}

TEST(PngMalformed, PixelsThatDoNotFitTheHeaderAreRefused) {
  const Bytes header = png_header(2, 4, 8, 0);
  EXPECT_EQ(decode_image(png_file(header, {}, grey_rows(4)), "FILE").size, (ImageSize{2, 4}));
  EXPECT_THAT(fault(png_file(header, {}, grey_rows(3))), HasSubstr("the PNG image is damaged: "));
  EXPECT_THAT(fault(png_file(header, {}, grey_rows(5))), HasSubstr("the PNG image is damaged: "));
  Bytes rows = grey_rows(4);
  rows[3] = 9;
  EXPECT_THAT(fault(png_file(header, {}, rows)), HasSubstr("bad adaptive filter value"));
}

TEST(PngMalformed, AWrongSumOfThePixelsIsRefused) {
  const Bytes header = png_header(2, 4, 8, 0);
  Bytes compressed = testing::deflated(grey_rows(4));
  compressed.back() ^= 1;
  const Bytes bytes =
      testing::png_of_chunks({header, chunk("IDAT", compressed), chunk("IEND", {})});
  EXPECT_THAT(fault(bytes), HasSubstr("incorrect data check"));
}

TEST(PngMalformed, PalettesThatDoNotFitAreRefused) {
  const Bytes header = png_header(2, 1, 8, 3);
  const Bytes palette = chunk("PLTE", {1, 2, 3, 4, 5, 6});
  const Image image = decode_image(png_file(header, palette, {0, 1, 0}), "FILE");
  EXPECT_THAT(image.pixels, ::testing::ElementsAre(4, 5, 6, 1, 2, 3));
  EXPECT_THAT(fault(png_file(header, palette, {0, 0, 2})),
      HasSubstr("a pixel has colour 2 of a palette of 2"));
  EXPECT_THAT(fault(png_file(header, {}, {0, 0, 0})), HasSubstr("the PNG image is damaged: "));
  EXPECT_THAT(
      fault(png_file(header, chunk("PLTE", {1, 2}), {0, 0, 0})), HasSubstr("damaged: PLTE: "));
}

TEST(PngMalformed, ChunksOutOfPlaceAreRefused) {
  const Bytes header = png_header(2, 4, 8, 0);
  const Bytes pixels = chunk("IDAT", testing::deflated(grey_rows(4)));
  const Bytes text = chunk("tEXt", {'a', 0, 'b'});
  const Bytes end = chunk("IEND", {});
  const auto file = [&](const Bytes& last) {
    return testing::png_of_chunks({header, pixels, text, last, end});
  };
  EXPECT_EQ(decode_image(file(text), "FILE").size, (ImageSize{2, 4}));
  EXPECT_THAT(fault(file(pixels)), HasSubstr("the PNG image is damaged: "));
  EXPECT_THAT(fault(file(header)), HasSubstr("IHDR: out of place"));
}

TEST(PngMalformed, UnknownCriticalChunksAreRefused) {
  EXPECT_THAT(fault(with_chunk(png({24, 16}), "CgBI", {0, 0, 0, 0})),
      HasSubstr("unhandled critical chunk"));
}

TEST(PngMalformed, ChunksThatAreNoPixelsAreLeftOut) {
  const Bytes whole = png({24, 16});
  const Image image = decode_image(whole, "FILE");
  Bytes compressed = bytes_of(std::string("Comment\0\0", 9));
  append(compressed, testing::deflated(Bytes(30 * kMebibyte, 'a')));
  Bytes profile = bytes_of(std::string("profile\0\0", 9));
  append(profile, testing::deflated(Bytes(20 * kMebibyte, 0)));
  for (const auto& [type, content] :
      {std::pair{"zTXt", compressed}, {"iCCP", profile}, {"tRNS", Bytes(1)}, {"gAMA", Bytes(2)},
          {"tEXt", Bytes(5 * kMebibyte, 'x')}, {"prVt", Bytes(70)}}) {
    EXPECT_EQ(decode_image(with_chunk(whole, type, content), "FILE").pixels, image.pixels) << type;
  }
}

TEST(PngMalformed, BytesAfterItsEndAreNotItsOwn) {
  Bytes longer = png({24, 16});
  append(longer, bytes_of("anything"));
  EXPECT_EQ(decode_image(longer, "FILE").pixels, decode_image(png({24, 16}), "FILE").pixels);
}

TEST(PngMalformed, DamagedExifLeavesTheImageUpright) {
  const auto info = ImageReader(with_chunk(png({24, 16}), "eXIf", {'M', 'M'}), "FILE").info();
  EXPECT_TRUE(info.exif_is_damaged);
  EXPECT_EQ(info.orientation, 1);
}

}  // namespace
}  // namespace lockstep
