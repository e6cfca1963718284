#include <algorithm>
#include <cstring>
#include <new>
#include <png.h>
#include <vector>

#include "lockstep/formats/byte_fields.h"
#include "lockstep/formats/image/error_jump.h"
#include "lockstep/formats/image/png.h"

namespace lockstep {
namespace {

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
void start_png(PngReader& reader, const PngHeader& header) {
  png_structp png = reader.png();
  reader.run([&] {
    png_set_user_limits(png, static_cast<png_uint_32>(header.size.width),
        static_cast<png_uint_32>(header.size.height));
    // check_png_checksums() has compared them all.
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
void read_interlaced(PngReader& reader, const PngHeader& header, const Box& box,
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

void read_plain_rows(PngReader& reader, const PngHeader& header, const Box& box,
    const RowConverter& converter, Image& out) {
  std::vector<std::uint8_t> row(static_cast<std::size_t>(header.size.width * header.channels));
  for (std::int64_t y = 0; y < box.top + box.height; ++y) {
    reader.run([&] { png_read_row(reader.png(), row.data(), nullptr); });
    if (y < box.top) continue;
    converter.convert(row.data() + box.left * header.channels, box.width, out.row(y - box.top));
  }
}

}  // namespace

void decode_png(std::span<const std::uint8_t> bytes, const std::string& name,
    const PngHeader& header, const Box& box, Image& out) {
  check_png_checksums(bytes, name);
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

}  // namespace lockstep
