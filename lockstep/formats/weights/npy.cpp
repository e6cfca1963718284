#include "lockstep/formats/weights/npy.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/text.h"
#include "lockstep/formats/byte_fields.h"
#include "lockstep/formats/input_file.h"
#include "lockstep/formats/weights/zip_archive.h"

namespace lockstep {
namespace {

constexpr std::size_t kVersionBytes = 2;
constexpr const char* kEnding = ".npy";

// NumPy's own limit is 10 000 bytes; it needs 128 for what is read here.
constexpr std::uint64_t kMostNpyHeaderBytes = 65'536;

struct NumpyType {
  std::string_view name;
  ElementType type;
};

constexpr std::array kTypes{NumpyType{"b1", ElementType::kBool},
    NumpyType{"u1", ElementType::kUint8}, NumpyType{"i1", ElementType::kInt8},
    NumpyType{"i2", ElementType::kInt16}, NumpyType{"u2", ElementType::kUint16},
    NumpyType{"f2", ElementType::kFloat16}, NumpyType{"i4", ElementType::kInt32},
    NumpyType{"u4", ElementType::kUint32}, NumpyType{"f4", ElementType::kFloat32},
    NumpyType{"c8", ElementType::kComplex64}, NumpyType{"f8", ElementType::kFloat64},
    NumpyType{"i8", ElementType::kInt64}, NumpyType{"u8", ElementType::kUint64},
    NumpyType{"c16", ElementType::kComplex128}};

/// A parser of an array's header, which is a dict as Python writes it:
///
///     {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
class NpyHeader {
 public:
  /// `offset` is where the text begins in the file.
  NpyHeader(std::string_view text, std::uint64_t offset, const std::string& file)
      : text_(text), offset_(offset), file_(file) {
    take('{');
    while (!takes('}')) {
      read_item();
      if (!takes(',')) {
        take('}');
        break;
      }
    }
    skip_blanks();
    if (at_ != text_.size()) refuse("its header goes on after the dict");
    if (!type_ || !is_fortran_ || !has_shape_)
      refuse("its header lacks descr, fortran_order or shape");
    if (*is_fortran_ && shape_.size() > 1)
      refuse("its numbers lie column by column; save numpy.ascontiguousarray(array)");
  }

  ElementType type() const { return *type_; }
  const std::vector<std::int64_t>& shape() const { return shape_; }

 private:
  [[noreturn]] void refuse(const auto&... reason) const {
    refuse_at(file_, offset_ + at_, reason...);
  }

  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }

  bool takes(std::string_view word) {
    skip_blanks();
    const bool is_there = text_.substr(at_).starts_with(word);
    if (is_there) at_ += word.size();
    return is_there;
  }
  bool takes(char letter) { return takes(std::string_view(&letter, 1)); }

  void take(char letter) {
    if (!takes(letter)) refuse("its header is no dict as NumPy writes it: ", letter, " is missing");
  }

  std::string_view quoted() {
    const char quote = takes('"') ? '"' : '\'';
    if (quote == '\'') take(quote);
    const std::size_t end = std::min(text_.find(quote, at_), text_.size());
    const std::string_view inside = text_.substr(at_, end - at_);
    at_ = end;
    take(quote);
    return inside;
  }

  void read_item() {
    const std::string_view key = quoted();
    take(':');
    if (key == "descr" && !type_) {
      read_type();
    } else if (key == "fortran_order" && !is_fortran_) {
      is_fortran_ = takes("True");
      if (!*is_fortran_ && !takes("False")) refuse("fortran_order must be True or False");
    } else if (key == "shape" && !has_shape_) {
      read_shape();
    } else {
      refuse("its header has the key ", printable(key), " twice, or it is none of NumPy's");
    }
  }

  void read_type() {
    if (takes('['))
      refuse(
          "it has records (a structured dtype), which are not read; save each field as an "
          "array of its own");
    const std::string_view descr = quoted();
    if (descr.find('O') != std::string_view::npos)
      refuse("it has Python's objects, which are not read; save an array of numbers");
    if (descr.starts_with('>'))
      refuse("its numbers are big-endian, ", printable(descr),
          "; save array.astype(array.dtype.newbyteorder('<'))");
    const bool is_ordered = descr.starts_with('<') || descr.starts_with('|');
    const auto* const known =
        std::ranges::find(kTypes, descr.substr(is_ordered ? 1 : 0), &NumpyType::name);
    if (!is_ordered || known == kTypes.end())
      refuse("its type ", printable(descr), " is none that is read; save an array of numbers");
    type_ = known->type;
  }

  void read_shape() {
    take('(');
    while (!takes(')')) {
      shape_.push_back(number());
      if (!takes(',')) {
        take(')');
        break;
      }
    }
    has_shape_ = true;
  }

  std::int64_t number() {
    skip_blanks();
    const std::size_t end = std::min(text_.find_first_not_of("0123456789", at_), text_.size());
    const auto size = parse_number<std::int64_t>(text_.substr(at_, end - at_));
    if (!size) refuse("its shape must consist of whole numbers");
    at_ = end;
    return *size;
  }

  std::string_view text_;
  std::uint64_t offset_;
  const std::string& file_;
  std::size_t at_ = 0;
  std::optional<ElementType> type_;
  std::optional<bool> is_fortran_;
  bool has_shape_ = false;
  std::vector<std::int64_t> shape_;
};

// The bytes after the version: how many bytes the header has, in two of them, or four.
std::size_t length_bytes(std::span<const std::uint8_t> bytes, const std::string& file) {
  if (!starts_with(bytes, kNpyMagic))
    refuse_at(file, 0, "it does not begin as numpy.save's files do");
  const std::size_t front = kNpyMagic.size() + kVersionBytes;
  if (bytes.size() < front + 4) refuse_at(file, bytes.size(), "the file ends within its header");
  const int version = bytes[kNpyMagic.size()];
  if (version < 1 || version > 3)
    refuse_at(file, kNpyMagic.size(), "version ", version, " of the format is not 1, 2 or 3");
  return version == 1 ? 2 : 4;
}

}  // namespace

TensorEntry parse_npy(
    std::span<const std::uint8_t> bytes, const std::string& name, const std::string& file) {
  const std::size_t length = length_bytes(bytes, file);
  const std::size_t front = kNpyMagic.size() + kVersionBytes;
  const std::uint64_t size = little_endian(bytes.subspan(front, length));
  const std::uint64_t begin = front + length;
  if (size > kMostNpyHeaderBytes || size > bytes.size() - begin)
    refuse_at(file, front, "a header of ", size, " bytes is longer than the file, or than any");
  const NpyHeader header(text_of(bytes.subspan(begin, size)), begin, file);
  const auto content = bytes.subspan(begin + size);
  if (tensor_bytes(header.type(), header.shape()) != content.size())
    refuse_at(file, begin + size, torch_name(header.type()), " of shape ",
        shape_text(header.shape()), " must be followed by as many numbers, and there are ",
        content.size(), " bytes");
  return {name, header.type(), header.shape(), content};
}

TensorFile read_npy(const std::filesystem::path& path, const std::string& name) {
  auto file = std::make_shared<const MappedFile>(path);
  return file->checked(
      [&] { return TensorFile({parse_npy(file->bytes(), name, file->name())}, {}, file); });
}

TensorFile read_npz(const std::filesystem::path& path) {
  auto file = std::make_shared<const MappedFile>(path);
  return file->checked([&] {
    std::vector<TensorEntry> entries;
    for (const ZipEntry& entry : read_zip(file->bytes(), file->name())) {
      const std::string where = concat(file->name(), ": ", printable_path(entry.name));
      if (entry.method != 0)
        refuse_at(file->name(), entry.offset, printable(entry.name),
            " is compressed, and cannot be mapped; save it by numpy.savez(NEW, **numpy.load(OLD))");
      if (!entry.name.ends_with(kEnding))
        refuse_at(file->name(), entry.offset, printable(entry.name), " is no array, by its name");
      const std::string name = entry.name.substr(0, entry.name.size() - 4);
      entries.push_back(parse_npy(entry.bytes, name, where));
    }
    return TensorFile(std::move(entries), {}, file);
  });
}

}  // namespace lockstep
