#include "lockstep/formats/image/png.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <new>
#include <png.h>
#include <string_view>
#include <zlib.h>

#include "lockstep/core/error.h"
#include "lockstep/formats/byte_fields.h"
#include "lockstep/formats/image/error_jump.h"

namespace lockstep {
namespace {

// A PNG file: 8 bytes of signature, then chunks: the length of the content (4 bytes, big-endian),
// the type (4 letters), the content, a CRC-32 of type and content.
constexpr std::size_t kSignatureBytes = 8;
constexpr std::size_t kChunkFrameBytes = 12;
constexpr std::size_t kHeaderBytes = 13;
constexpr std::uint32_t kLongestChunk = std::numeric_limits<std::int32_t>::max();
// Deflate's best: 258 bytes for a length and a distance of 1 bit each.
constexpr std::uint64_t kBestRatio = 1032;

struct Chunk {
  std::size_t offset;
  std::string_view type;
  std::span<const std::uint8_t> content;
  std::uint32_t checksum;

  /// The bytes that the checksum covers.
  std::span<const std::uint8_t> covered() const { return {content.data() - 4, content.size() + 4}; }
};

/// Returns the four bytes at a place as a number, highest first.
std::uint32_t word_at(std::span<const std::uint8_t> bytes, std::size_t offset) {
  return static_cast<std::uint32_t>(big_endian(bytes.subspan(offset, 4)));
}

bool is_letter(char c) { return ('A' <= c && c <= 'Z') || ('a' <= c && c <= 'z'); }

Chunk chunk_at(std::span<const std::uint8_t> bytes, std::size_t offset, const std::string& name) {
  const auto rest = bytes.subspan(offset);
  if (rest.size() < kChunkFrameBytes) {
    refuse_at(name, offset, "the file ends before its IEND chunk: it was cut");
  }
  const std::uint32_t length = word_at(rest, 0);
  const std::string_view type = text_of(rest.subspan(4, 4));
  for (const char c : type) {
    if (!is_letter(c))
      refuse_at(name, offset + 4, "the type of a PNG chunk is not made of letters");
  }
  if (length > kLongestChunk || length > rest.size() - kChunkFrameBytes) {
    refuse_at(name, offset, "the file ends inside a PNG chunk ", type, " of ", length, " bytes");
  }
  return {offset, type, rest.subspan(8, length), word_at(rest, 8 + length)};
}

/// Calls `take` with each chunk up to IEND.
template <typename Take>
void for_each_chunk(
    std::span<const std::uint8_t> bytes, const std::string& name, const Take& take) {
  std::size_t offset = kSignatureBytes;
  while (true) {
    const Chunk chunk = chunk_at(bytes, offset, name);
    take(chunk);
    if (chunk.type == "IEND") return;
    offset += chunk.content.size() + kChunkFrameBytes;
  }
}

int channels_of(int colour_type, const std::string& name, std::size_t offset) {
  switch (colour_type) {
    case 0:
    case 3:
      return 1;
    case 2:
      return 3;
    case 4:
      return 2;
    case 6:
      return 4;
    default:
      refuse_at(name, offset, "the colour type of the PNG image is ", colour_type,
          ", not 0, 2, 3, 4 or 6");
  }
}

bool is_depth_allowed(int depth, int colour_type) {
  if (depth == 8) return true;
  if (depth == 16) return colour_type != 3;
  return (depth == 1 || depth == 2 || depth == 4) && (colour_type == 0 || colour_type == 3);
}

ImageInfo read_first_chunk(const Chunk& chunk, const std::string& name, const ImageLimits& limits) {
  if (chunk.type != "IHDR" || chunk.content.size() != kHeaderBytes) {
    refuse_at(name, chunk.offset, "the first chunk of the PNG image is not an IHDR of 13 bytes");
  }
  const auto& content = chunk.content;
  const std::size_t offset = chunk.offset + 8;
  const int colour_type = content[9];
  ImageInfo header{.kind = ImageKind::kPng,
      .size = {word_at(content, 0), word_at(content, 4)},
      .channels = channels_of(colour_type, name, offset + 9),
      .exif = {},
      .bit_depth = content[8],
      .interlaced = content[12] == 1};
  if (!is_depth_allowed(header.bit_depth, colour_type)) {
    refuse_at(name, offset + 8, "a PNG image of colour type ", colour_type, " cannot have ",
        header.bit_depth, " bits a sample");
  }
  if (content[10] != 0 || content[11] != 0 || content[12] > 1) {
    refuse_at(
        name, offset + 10, "the PNG image is compressed, filtered or interlaced in an unknown way");
  }
  check_limits(header.size, limits, name, offset);
  return header;
}

/// Refuses what deflate cannot give; the filter bytes, one a row, count as pixels do.
void check_enough_bytes(
    const ImageInfo& header, std::uint64_t compressed, const std::string& name) {
  const auto bits =
      static_cast<std::uint64_t>(header.size.width * header.channels * header.bit_depth);
  const std::uint64_t needed =
      static_cast<std::uint64_t>(header.size.height) * (1 + (bits + 7) / 8);
  if (needed / kBestRatio <= compressed) return;
  refuse_at(name, kSignatureBytes, "the IDAT chunks are too short: ", compressed,
      " bytes cannot hold an image of ", header.size.width, " x ", header.size.height, " pixels");
}

/// Compares the checksum of every chunk; a wrong one is a DataError that names the chunk.
void check_checksums(std::span<const std::uint8_t> bytes, const std::string& name) {
  for_each_chunk(bytes, name, [&](const Chunk& chunk) {
    const auto covered = chunk.covered();
    if (crc32_z(0, covered.data(), covered.size()) == chunk.checksum) return;
    refuse_at(name, chunk.offset, "the checksum of the PNG chunk ", chunk.type,
        " is wrong: the file is damaged");
  });
}

constexpr std::int64_t kRgbChannels = 3;

[[noreturn]] void leave_with_png_error(png_structp png, png_const_charp message) {
  auto* jump = static_cast<ErrorJump*>(png_get_error_ptr(png));
  std::strncpy(jump->text.data(), message, jump->text.size() - 1);
  jump->leave();
}

void take_bytes(png_structp png, png_bytep out, std::size_t count) {
  auto* rest = static_cast<std::span<const std::uint8_t>*>(png_get_io_ptr(png));
  if (count > rest->size()) png_error(png, "the file ends too early");
  std::copy_n(rest->begin(), count, out);
  *rest = rest->subspan(count);
}

/// libpng's state for one file.
class PngReader {
 public:
  PngReader(std::span<const std::uint8_t> bytes, const std::string& name)
      : size_(bytes.size()), rest_(bytes), name_(name) {
    png_ = png_create_read_struct(
        PNG_LIBPNG_VER_STRING, &jump_, leave_with_png_error, leave_with_png_error);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) {
      png_destroy_read_struct(&png_, nullptr, nullptr);
      throw std::bad_alloc();
    }
    png_set_read_fn(png_, &rest_, take_bytes);
  }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }

  png_structp png() { return png_; }
  png_infop info() { return info_; }

  /// Runs calls of libpng; see Note [Errors of C libraries].
  template <typename Body>
  void run(const Body& body) {
    if (!jump_.run(body)) fail(jump_.text.data());
  }

  template <typename... Parts>
  [[noreturn]] void fail(const Parts&... reason) const {
    refuse_at(name_, size_ - rest_.size(), "the PNG image is damaged: ", reason...);
  }

 private:
  std::size_t size_;
  std::span<const std::uint8_t> rest_;
  const std::string& name_;
  ErrorJump jump_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

/// Passes over what is not pixels, so that libpng gives it no memory, however long it is.
void leave_out_other_chunks(png_structp png) {
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  const png_byte transparency[] = "tRNS";
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, transparency, 1);
  png_set_chunk_malloc_max(png, 0);  // libpng refuses longer ones even where it passes over them
}

/// Reads what stands before the pixels, and asks for samples of 8 bits.
void start_png(PngReader& reader, const ImageInfo& header) {
  png_structp png = reader.png();
  reader.run([&] {
    png_set_user_limits(png, static_cast<png_uint_32>(header.size.width),
        static_cast<png_uint_32>(header.size.height));
    // check_checksums() has compared them all.
    png_set_crc_action(png, PNG_CRC_QUIET_USE, PNG_CRC_QUIET_USE);
    leave_out_other_chunks(png);
    png_read_info(png, reader.info());
    if (png_get_color_type(png, reader.info()) == PNG_COLOR_TYPE_GRAY) {
      png_set_expand_gray_1_2_4_to_8(png);
    }
    png_set_packing(png);
    png_set_strip_16(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, reader.info());
  });
}

/// A conversion of rows of 8-bit samples into RGB.
class RowConverter {
 public:
  explicit RowConverter(PngReader& reader, std::int64_t channels)
      : reader_(reader), channels_(channels) {
    if (png_get_color_type(reader.png(), reader.info()) != PNG_COLOR_TYPE_PALETTE) return;
    int colours = 0;
    if (png_get_PLTE(reader.png(), reader.info(), &palette_, &colours) == 0) {
      reader.fail("the palette is missing");
    }
    colours_ = colours;
  }

  void convert(const std::uint8_t* from, std::int64_t pixels, std::uint8_t* to) const {
    if (palette_ != nullptr) {
      look_up(from, pixels, to);
    } else if (channels_ >= kRgbChannels) {
      for (std::int64_t i = 0; i < pixels; ++i)
        std::copy_n(from + i * channels_, kRgbChannels, to + i * kRgbChannels);
    } else {
      for (std::int64_t i = 0; i < pixels; ++i)
        std::fill_n(to + i * kRgbChannels, kRgbChannels, from[i * channels_]);
    }
  }

 private:
  void look_up(const std::uint8_t* from, std::int64_t pixels, std::uint8_t* to) const {
    for (std::int64_t i = 0; i < pixels; ++i, to += kRgbChannels) {
      if (from[i] >= colours_) {
        reader_.fail("a pixel has colour ", int{from[i]}, " of a palette of ", colours_);
      }
      const png_color& colour = palette_[from[i]];
      to[0] = colour.red;
      to[1] = colour.green;
      to[2] = colour.blue;
    }
  }

  PngReader& reader_;
  std::int64_t channels_;
  png_colorp palette_ = nullptr;
  int colours_ = 0;
};

/// Each pass of an interlaced image touches all rows, so all must be there.
void read_interlaced(PngReader& reader, const ImageInfo& header, const Box& box,
    const RowConverter& converter, Image& out) {
  Image whole = Image::of_size(header.size, header.channels);
  std::vector<png_bytep> rows;
  for (std::int64_t y = 0; y < header.size.height; ++y) rows.push_back(whole.row(y));
  reader.run([&] { png_read_image(reader.png(), rows.data()); });
  for (std::int64_t y = 0; y < box.height; ++y) {
    const std::uint8_t* from = whole.row(box.top + y) + box.left * header.channels;
    converter.convert(from, box.width, out.row(y));
  }
}

void read_plain_rows(PngReader& reader, const ImageInfo& header, const Box& box,
    const RowConverter& converter, Image& out) {
  std::vector<std::uint8_t> row(static_cast<std::size_t>(header.size.width * header.channels));
  for (std::int64_t y = 0; y < box.top + box.height; ++y) {
    reader.run([&] { png_read_row(reader.png(), row.data(), nullptr); });
    if (y < box.top) continue;
    converter.convert(row.data() + box.left * header.channels, box.width, out.row(y - box.top));
  }
}

}  // namespace

ImageInfo read_png_header(
    std::span<const std::uint8_t> bytes, const std::string& name, const ImageLimits& limits) {
  if (bytes.size() < kSignatureBytes)
    refuse_at(name, bytes.size(), "the file ends inside its signature");
  ImageInfo header = read_first_chunk(chunk_at(bytes, kSignatureBytes, name), name, limits);
  std::uint64_t compressed = 0;
  for_each_chunk(bytes, name, [&](const Chunk& chunk) {
    if (chunk.type == "IDAT") compressed += chunk.content.size();
    if (chunk.type == "eXIf") header.exif = exif_orientation(chunk.content);
  });
  check_enough_bytes(header, compressed, name);
  return header;
}

void decode_png(std::span<const std::uint8_t> bytes, const std::string& name,
    const ImageInfo& header, const Box& box, Image& out) {
  check_checksums(bytes, name);
  PngReader reader(bytes, name);
  start_png(reader, header);
  const auto row_bytes = static_cast<std::size_t>(header.size.width * header.channels);
  if (png_get_rowbytes(reader.png(), reader.info()) != row_bytes) reader.fail("its header changes");
  const RowConverter converter(reader, header.channels);
  header.interlaced ? read_interlaced(reader, header, box, converter, out)
                    : read_plain_rows(reader, header, box, converter, out);
  if (box.top + box.height == header.size.height || header.interlaced) {
    reader.run([&] { png_read_end(reader.png(), reader.info()); });
  }
}

std::vector<std::uint8_t> encode_png(const ImageView& image) {
  constexpr std::array<png_uint_32, 4> kFormats{
      PNG_FORMAT_GRAY, PNG_FORMAT_GA, PNG_FORMAT_RGB, PNG_FORMAT_RGBA};
  check(1 <= image.channels && image.channels <= 4,
      "encode_png: the image must have 1 to 4 channels: ", image.channels);
  check_holds_its_pixels(image);
  png_image file{};
  file.version = PNG_IMAGE_VERSION;
  file.width = static_cast<png_uint_32>(image.size.width);
  file.height = static_cast<png_uint_32>(image.size.height);
  file.format = kFormats[static_cast<std::size_t>(image.channels - 1)];
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(file);
  std::vector<std::uint8_t> bytes(size);
  const int done =
      png_image_write_to_memory(&file, bytes.data(), &size, 0, image.pixels.data(), 0, nullptr);
  check(done != 0, "encode_png: ", file.message);
  bytes.resize(size);
  return bytes;
}

}  // namespace lockstep
