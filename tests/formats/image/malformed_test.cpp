// jpeglib.h needs FILE, and does not say so.
#include <cstdio>
#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <jpeglib.h>

#include "tests/formats/image/image_bytes.h"
#include "tests/support/message_of.h"

#include "lockstep/formats/image/image_reader.h"

namespace lockstep {
namespace {

using testing::append;
using testing::Bytes;
using testing::bytes_of;
using testing::chunk;
using testing::cut;
using testing::find_segment;
using ::testing::HasSubstr;
using testing::jpeg;
using testing::jpeg_frame;
using testing::picture;
using testing::png;
using testing::png_file;
using testing::png_header;
using testing::segment;
using ::testing::StartsWith;
using testing::with_chunk;

std::string refusal(const Bytes& bytes, const ImageOptions& options = {}) {
  return testing::message_of<DataError>([&] { decode_image(bytes, "FILE", options); });
}

std::string refusal_of_part(const Bytes& bytes) {
  return testing::message_of<DataError>([&] { ImageReader(bytes, "FILE").read({3, 4, 5, 6}); });
}

Bytes with_end(Bytes bytes) {
  append(bytes, {0xff, 0xd9});
  return bytes;
}

/// Makes a JPEG file of 3 components with these scans, as libjpeg's wizard.txt describes them; its
/// errors end the test program.
Bytes jpeg_of_scans(const Image& image, const std::vector<jpeg_scan_info>& scans) {
  jpeg_error_mgr errors{};
  jpeg_compress_struct info{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_width = static_cast<JDIMENSION>(image.size.width);
  info.image_height = static_cast<JDIMENSION>(image.size.height);
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  info.scan_info = scans.data();
  info.num_scans = static_cast<int>(scans.size());
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<JSAMPROW>(image.view().row(info.next_scanline));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  Bytes bytes(memory, memory + size);
  std::free(memory);
  return bytes;
}

/// Lists one scan for each component, coefficient and bit: 1 + 3 x 63 x bits scans.
std::vector<jpeg_scan_info> many_scans(int bits) {
  std::vector<jpeg_scan_info> scans{{3, {0, 1, 2, 0}, 0, 0, 0, 0}};
  for (int component = 0; component < 3; ++component) {
    for (int coefficient = 1; coefficient < 64; ++coefficient) {
      for (int bit = bits - 1; bit >= 0; --bit) {
        const int before = bit == bits - 1 ? 0 : bit + 1;
        scans.push_back({1, {component, 0, 0, 0}, coefficient, coefficient, before, bit});
      }
    }
  }
  return scans;
}

/// Lists one scan for each component, of all its coefficients.
std::vector<jpeg_scan_info> scan_of_each_component() {
  return {{1, {0, 0, 0, 0}, 0, 63, 0, 0}, {1, {1, 0, 0, 0}, 0, 63, 0, 0},
      {1, {2, 0, 0, 0}, 0, 63, 0, 0}};
}

/// Finds where the scan of that number begins, counted from 0.
std::size_t find_scan(const Bytes& jpeg, int number) {
  for (std::size_t at = 0; at + 1 < jpeg.size(); ++at) {
    if (jpeg[at] == 0xff && jpeg[at + 1] == 0xda && number-- == 0) return at;
  }
  throw std::runtime_error("no such scan");
}

/// Replaces the frame of a sound file.
Bytes with_frame(const Bytes& frame) {
  Bytes bytes = jpeg({24, 16});
  const std::size_t at = find_segment(bytes, 0xc0);
  const std::size_t size = 2 + static_cast<std::size_t>(bytes[at + 2] << 8 | bytes[at + 3]);
  bytes.erase(bytes.begin() + static_cast<std::ptrdiff_t>(at),
      bytes.begin() + static_cast<std::ptrdiff_t>(at + size));
  return testing::inserted(bytes, at, frame);
}

TEST(ImageMalformed, CutAtEveryByteIsRefused) {
  for (const Bytes& whole :
      {jpeg({24, 16}), jpeg({24, 16}, {.progressive = true}), png({24, 16})}) {
    for (std::size_t size = 0; size < whole.size(); ++size) {
      EXPECT_THAT(refusal(cut(whole, size)), StartsWith("FILE: offset ")) << size;
      EXPECT_THAT(refusal_of_part(cut(whole, size)), StartsWith("FILE: offset ")) << size;
    }
  }
}

TEST(JpegMalformed, CutInASegmentNamesIt) {
  const Bytes whole = jpeg({24, 16});
  const std::size_t table = find_segment(whole, 0xdb);
  const std::size_t end =
      table + 2 + static_cast<std::size_t>(whole[table + 2] << 8 | whole[table + 3]);
  EXPECT_EQ(refusal(cut(whole, end - 1)),
      concat("FILE: offset ", table, ": the file ends inside a JPEG segment of 67 bytes"));
  EXPECT_EQ(refusal(cut(whole, end)),
      concat("FILE: offset ", end, ": the file ends inside its JPEG header"));
}

TEST(JpegMalformed, CutInItsScanNamesTheEnd) {
  const Bytes whole = jpeg();
  const std::size_t size = whole.size() - 300;
  EXPECT_EQ(refusal(cut(whole, size)),
      concat("FILE: offset ", size, ": the file ends before its JPEG image does: it was cut"));
  EXPECT_THAT(
      refusal(with_end(cut(whole, size))), HasSubstr("Corrupt JPEG data: premature end of data"));
}

/// The frame of a JPEG file, and what is said of it.
struct Frame {
  int marker;
  std::uint32_t width = 24;
  std::uint32_t height = 16;
  int bits = 8;
  int components = 3;
  std::string reason;
};

TEST(JpegMalformed, FramesThatAreNotReadAreRefusedByName) {
  const std::string arithmetic = ": JPEG with arithmetic coding is not read; convert the file";
  const std::string other = "JPEG with lossless, hierarchical or arithmetic coding is not read";
  std::vector<Frame> frames{{.marker = 0xc9, .reason = arithmetic},
      {.marker = 0xca, .reason = arithmetic},
      {.marker = 0xc3, .reason = "JPEG with lossless coding"},
      {.marker = 0xc0, .width = 0, .reason = ": the image of 0 x 16 pixels is empty"},
      {.marker = 0xc0, .height = 0, .reason = ": the image of 24 x 0 pixels is empty"}};
  for (const int marker : {0xc5, 0xc6, 0xc7, 0xcb, 0xcd, 0xce, 0xcf})
    frames.push_back({.marker = marker, .reason = other});
  for (const int bits : {12, 16, 2, 0}) {
    frames.push_back({.marker = 0xc1,
        .bits = bits,
        .reason = concat(": JPEG with ", bits, " bits a sample is not read, only 8")});
  }
  for (const int count : {0, 2, 5, 255}) {
    frames.push_back({.marker = 0xc0,
        .components = count,
        .reason = concat("JPEG with ", count, " components is not read, only 1, 3 or 4")});
  }
  for (const auto& [marker, width, height, bits, components, reason] : frames) {
    EXPECT_THAT(refusal(with_frame(jpeg_frame(marker, width, height, bits, components))),
        HasSubstr(reason));
  }
}

TEST(JpegMalformed, FramesThatDoNotFitTheirLengthAreRefused) {
  for (const int count : {3, 4}) {
    Bytes frame = jpeg_frame(0xc0, 24, 16, 8, 7 - count);
    frame[9] = static_cast<std::uint8_t>(count);
    EXPECT_THAT(refusal(with_frame(frame)),
        HasSubstr(concat("does not have the length of its ", count, " components")));
  }
  EXPECT_THAT(refusal(with_frame(segment(0xc0, {8, 0, 1}))), HasSubstr("frame is too short"));
  for (const int sampling : {0x00, 0x10, 0x01, 0x51, 0x15}) {
    Bytes frame = jpeg_frame(0xc0, 24, 16);
    frame[11] = static_cast<std::uint8_t>(sampling);
    EXPECT_THAT(refusal(with_frame(frame)), HasSubstr("a JPEG sampling factor is not 1 to 4"));
  }
}

TEST(JpegMalformed, SidesBeyondTheLimitAreRefused) {
  const std::string reason = "has a side above the limit of 16384";
  const Bytes tall = jpeg({1, 65'500});
  const Bytes wide = jpeg({65'500, 1});
  EXPECT_THAT(refusal(tall), HasSubstr(": the image of 1 x 65500 pixels " + reason));
  EXPECT_THAT(refusal(wide), HasSubstr(": the image of 65500 x 1 pixels " + reason));
  const ImageOptions wider{.limits = {.side = 65'500}};
  EXPECT_EQ(decode_image(tall, "FILE", wider).size, (ImageSize{1, 65'500}));
  EXPECT_EQ(decode_image(wide, "FILE", wider).size, (ImageSize{65'500, 1}));
  EXPECT_THAT(refusal(with_frame(jpeg_frame(0xc0, 16'384, 4'097))),
      HasSubstr("16384 x 4097 pixels has more pixels than the limit of 67108864"));
}

TEST(JpegMalformed, MarkersOutOfOrderAreRefused) {
  const Bytes whole = jpeg({24, 16});
  EXPECT_THAT(
      refusal(with_end({0xff, 0xd8})), HasSubstr("offset 2: the JPEG image ends or begins"));
  const Bytes twice = testing::inserted(whole, find_segment(whole, 0xc0), jpeg_frame(0xc0, 24, 16));
  EXPECT_THAT(refusal(twice), HasSubstr("the JPEG image has two frames"));
  EXPECT_THAT(
      refusal(with_end(testing::inserted({0xff, 0xd8}, 2, segment(0xda, {1, 1, 0, 0, 63, 0})))),
      HasSubstr("offset 2: the first scan comes before the frame"));
  EXPECT_THAT(refusal(testing::inserted(whole, 2, {0xff, 0xe5, 0, 1})),
      HasSubstr("offset 2: the JPEG segment has a length of 1, less than 2"));
  EXPECT_THAT(refusal(testing::inserted(cut(whole, 100), 2, {0xff, 0xe5, 0xff, 0xff})),
      HasSubstr("offset 2: the file ends inside a JPEG segment of 65535 bytes"));
}

TEST(JpegMalformed, FillBytesAndLoneMarkersAreSound) {
  const Bytes whole = jpeg({24, 16});
  for (const Bytes& more : {Bytes{0xff, 0xff, 0xff}, Bytes{0xff, 0x01}, Bytes{0xff, 0xd3}}) {
    EXPECT_EQ(decode_image(testing::inserted(whole, 2, more), "FILE").pixels,
        decode_image(whole, "FILE").pixels);
  }
}

// As in the images of cats and dogs that many begin with; Pillow and torchvision read them.
TEST(JpegMalformed, StrayBytesBetweenSegmentsAreSound) {
  for (const bool progressive : {false, true}) {
    const Bytes whole = jpeg({200, 160}, {.progressive = progressive});
    const auto pixels = decode_image(whole, "FILE").pixels;
    for (const Bytes& stray : {Bytes{7}, Bytes{0xff, 0}, Bytes(228, 1), Bytes{1, 2, 0xff, 0xff}}) {
      for (const std::size_t at :
          {find_segment(whole, 0xdb), find_segment(whole, 0xc4), whole.size() - 2}) {
        const Bytes bytes = testing::inserted(whole, at, stray);
        EXPECT_EQ(decode_image(bytes, "FILE").pixels, pixels) << stray.size() << " at " << at;
        EXPECT_NO_THROW(ImageReader(bytes, "FILE").read({3, 4, 5, 6}));
      }
    }
  }
}

TEST(JpegMalformed, AnotherVersionOfItsHeaderIsSound) {
  Bytes bytes = jpeg({24, 16});
  const std::size_t header = find_segment(bytes, 0xe0);
  ASSERT_EQ(bytes[header + 4], 'J');
  bytes[header + 9] = 0;  // the first number of the version
  EXPECT_EQ(decode_image(bytes, "FILE").pixels, decode_image(jpeg({24, 16}), "FILE").pixels);
}

TEST(JpegMalformed, MissingQuantizationTablesAreRefused) {
  Bytes bytes = jpeg({24, 16});
  bytes[find_segment(bytes, 0xdb) + 1] = 0xe9;
  EXPECT_THAT(refusal(bytes),
      HasSubstr(": the JPEG image is damaged or cut: Quantization table 0x00 was not defined"));
}

// As in the frames of Motion JPEG, where the tables that are not there are those of the standard.
TEST(JpegMalformed, MissingHuffmanTablesAreTheStandards) {
  Bytes bytes = jpeg({24, 16});
  for (int table = 0; table < 4; ++table) bytes[find_segment(bytes, 0xc4) + 1] = 0xe9;
  EXPECT_EQ(decode_image(bytes, "FILE").pixels, decode_image(jpeg({24, 16}), "FILE").pixels);
}

TEST(JpegMalformed, DamagedScansAreRefused) {
  const Bytes whole = jpeg({200, 160});
  EXPECT_THAT(refusal(testing::inserted(whole, find_scan(whole, 0) + 300, {0xff, 0xd9})),
      HasSubstr("Corrupt JPEG data: premature end of data segment"));
  Bytes zeros = whole;
  for (std::size_t at = find_scan(whole, 0) + 200; at < zeros.size() - 2; ++at) zeros[at] = 0;
  EXPECT_THAT(refusal(zeros), HasSubstr("4025 extraneous bytes")) << "a hole in the file";
}

TEST(JpegMalformed, BytesAfterItsEndAreNotItsOwn) {
  const Bytes whole = jpeg({24, 16});
  Bytes longer = whole;
  append(longer, Bytes(1000, 0));
  EXPECT_EQ(decode_image(longer, "FILE").pixels, decode_image(whole, "FILE").pixels);
}

TEST(JpegMalformed, ScansBeyondTheLimitAreRefused) {
  const Image image = picture({16, 16});
  const Bytes many = jpeg_of_scans(image, many_scans(6));
  EXPECT_THAT(find_scan(many, 1000), ::testing::Gt(0U));
  EXPECT_THAT(refusal(many), HasSubstr("damaged or cut: more than 200 scans"));
  EXPECT_THAT(refusal_of_part(many), HasSubstr("more than 200 scans"));
  const Bytes some = jpeg_of_scans(image, many_scans(1));
  EXPECT_EQ(decode_image(some, "FILE").size, image.size);
  EXPECT_THAT(refusal(some, {.limits = {.scans = 189}}), HasSubstr("more than 189 scans"));
  EXPECT_EQ(decode_image(some, "FILE", {.limits = {.scans = 190}}).size, image.size);
}

TEST(JpegMalformed, ComponentsWithoutAScanAreRefused) {
  const Bytes whole = jpeg_of_scans(picture({24, 16}), scan_of_each_component());
  EXPECT_EQ(decode_image(whole, "FILE").size, (ImageSize{24, 16}));
  EXPECT_THAT(
      refusal(with_end(cut(whole, find_scan(whole, 2)))), HasSubstr("component 2 is missing"));
  EXPECT_THAT(refusal_of_part(with_end(cut(whole, find_scan(whole, 1)))),
      HasSubstr("component 1 is missing"));
}

TEST(JpegMalformed, DamagedExifLeavesTheImageUpright) {
  const Bytes whole = jpeg({24, 16});
  for (const Bytes& tiff : {Bytes{}, Bytes{'I', 'I'}, testing::exif(9), testing::exif(0)}) {
    const Bytes bytes = testing::with_segment(whole, 0xe1, testing::exif_segment_content(tiff));
    const auto info = ImageReader(bytes, "FILE").info();
    EXPECT_TRUE(info.exif.is_damaged);
    EXPECT_EQ(info.exif.value, 1);
    EXPECT_EQ(decode_image(bytes, "FILE").pixels, decode_image(whole, "FILE").pixels);
  }
}

TEST(JpegMalformed, OnlyTheFirstExifCounts) {
  Bytes bytes =
      testing::with_segment(jpeg({24, 16}), 0xe1, testing::exif_segment_content(testing::exif(3)));
  bytes = testing::with_segment(bytes, 0xe1, testing::exif_segment_content(testing::exif(6)));
  bytes = testing::with_segment(bytes, 0xe1, testing::bytes_of("http://ns.adobe.com/xap/1.0/"));
  EXPECT_EQ(ImageReader(bytes, "FILE").info().exif.value, 6);
}

constexpr std::size_t kMebibyte = 1 << 20;

/// Makes rows of 2 grey pixels, each with its filter byte.
Bytes grey_rows(std::size_t rows) { return Bytes(3 * rows, 0); }

TEST(PngMalformed, CutInItsPixelsNamesTheChunk) {
  const Bytes whole = png({24, 16});
  constexpr std::size_t kEndChunk = 12;
  for (std::size_t missing = 1; missing <= 20; ++missing) {
    EXPECT_THAT(refusal(cut(whole, whole.size() - kEndChunk - missing)),
        StartsWith("FILE: offset 46: the file ends inside a PNG chunk IDAT"));
  }
  EXPECT_THAT(refusal(cut(whole, whole.size() - 1)),
      HasSubstr("the file ends before its IEND chunk: it was cut"));
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
    EXPECT_EQ(refusal(bytes), expected);
    EXPECT_EQ(refusal_of_part(bytes), expected);
    at += 12 + length;
  }
}

TEST(PngMalformed, ChunksThatLeaveTheFileAreRefused) {
  Bytes bytes = png({24, 16});
  bytes[33] = 0x7f;
  EXPECT_THAT(refusal(bytes), StartsWith("FILE: offset 33: the file ends inside a PNG chunk "));
  bytes[33] = 0xff;
  EXPECT_THAT(refusal(bytes), StartsWith("FILE: offset 33: the file ends inside a PNG chunk "));
  bytes = png({24, 16});
  bytes[38] = '1';
  EXPECT_THAT(
      refusal(bytes), HasSubstr("offset 37: the type of a PNG chunk is not made of letters"));
}

TEST(PngMalformed, HeadersThatCannotBeAreRefused) {
  const auto with_header = [](const Bytes& header) { return png_file(header, {}, grey_rows(2)); };
  EXPECT_EQ(decode_image(with_header(png_header(2, 2, 8, 0)), "FILE").size, (ImageSize{2, 2}));
  EXPECT_EQ(refusal(with_header(png_header(0, 2))),
      "FILE: offset 16: the image of 0 x 2 pixels is empty");
  EXPECT_EQ(refusal(with_header(png_header(2, 0))),
      "FILE: offset 16: the image of 2 x 0 pixels is empty");
  for (const auto& [header, reason] :
      std::vector<std::pair<Bytes, std::string>>{
          {png_header(16'385, 1, 1, 0),
              "FILE: offset 16: the image of 16385 x 1 pixels has a side above the limit of 16384"},
          {png_header(16'384, 16'384, 1, 0), "has more pixels than the limit of 67108864"},
          {png_header(0xffffffff, 0xffffffff), "has a side above"},
          {png_header(2, 2, 8, 5), "FILE: offset 25: the colour type of the PNG image is 5"},
          {png_header(2, 2, 16, 3),
              "FILE: offset 24: a PNG image of colour type 3 cannot have 16 bits a sample"},
          {png_header(2, 2, 4, 2), "cannot have 4 bits a sample"},
          {png_header(2, 2, 3, 0), "cannot have 3 bits a sample"},
          {png_header(2, 2, 8, 0, 2), "compressed, filtered or interlaced in an unknown way"},
          {chunk("IDAT", {}),
              "FILE: offset 8: the first chunk of the PNG image is not an IHDR of 13 bytes"}})
    EXPECT_THAT(refusal(with_header(header)), HasSubstr(reason));
}

TEST(PngMalformed, UnknownMethodsAreRefused) {
  for (const std::size_t method : {26U, 27U}) {  // of compression and of filtering
    Bytes bytes = png({24, 16});
    bytes[method] = 1;
    EXPECT_THAT(refusal(testing::with_true_checksums(bytes)),
        HasSubstr("offset 26: the PNG image is compressed, filtered or interlaced in an unknown"));
  }
}

TEST(PngMalformed, PixelsThatDoNotFitTheHeaderAreRefused) {
  const Bytes header = png_header(2, 4, 8, 0);
  EXPECT_EQ(decode_image(png_file(header, {}, grey_rows(4)), "FILE").size, (ImageSize{2, 4}));
  EXPECT_THAT(refusal(png_file(header, {}, grey_rows(3))), HasSubstr("the PNG image is damaged: "));
  EXPECT_THAT(refusal(png_file(header, {}, grey_rows(5))), HasSubstr("the PNG image is damaged: "));
  Bytes rows = grey_rows(4);
  rows[3] = 9;
  EXPECT_THAT(refusal(png_file(header, {}, rows)), HasSubstr("bad adaptive filter value"));
}

TEST(PngMalformed, AWrongSumOfThePixelsIsRefused) {
  const Bytes header = png_header(2, 4, 8, 0);
  Bytes compressed = testing::deflated(grey_rows(4));
  compressed.back() ^= 1;
  const Bytes bytes =
      testing::png_of_chunks({header, chunk("IDAT", compressed), chunk("IEND", {})});
  EXPECT_THAT(refusal(bytes), HasSubstr("incorrect data check"));
}

TEST(PngMalformed, PalettesThatDoNotFitAreRefused) {
  const Bytes header = png_header(2, 1, 8, 3);
  const Bytes palette = chunk("PLTE", {1, 2, 3, 4, 5, 6});
  const Image image = decode_image(png_file(header, palette, {0, 1, 0}), "FILE");
  EXPECT_THAT(image.pixels, ::testing::ElementsAre(4, 5, 6, 1, 2, 3));
  EXPECT_THAT(refusal(png_file(header, palette, {0, 0, 2})),
      HasSubstr("a pixel has colour 2 of a palette of 2"));
  EXPECT_THAT(refusal(png_file(header, {}, {0, 0, 0})), HasSubstr("the PNG image is damaged: "));
  EXPECT_THAT(
      refusal(png_file(header, chunk("PLTE", {1, 2}), {0, 0, 0})), HasSubstr("damaged: PLTE: "));
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
  EXPECT_THAT(refusal(file(pixels)), HasSubstr("the PNG image is damaged: "));
  EXPECT_THAT(refusal(file(header)), HasSubstr("IHDR: out of place"));
}

TEST(PngMalformed, UnknownCriticalChunksAreRefused) {
  EXPECT_THAT(refusal(with_chunk(png({24, 16}), "CgBI", {0, 0, 0, 0})),
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
  EXPECT_TRUE(info.exif.is_damaged);
  EXPECT_EQ(info.exif.value, 1);
}

}  // namespace
}  // namespace lockstep
