#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/formats/input_file.h"

namespace lockstep {

/// The type of a tensor's elements in a file.
///
/// The order is that in which safetensors lists its types: its writers put later ones first.
enum class ElementType : std::uint8_t {
  kBool,
  kUint8,
  kInt8,
  kFloat8E5m2,
  kFloat8E4m3fn,
  kFloat8E8m0fnu,
  kFloat8E4m3fnuz,
  kFloat8E5m2fnuz,
  kInt16,
  kUint16,
  kFloat16,
  kBfloat16,
  kInt32,
  kUint32,
  kFloat32,
  kComplex64,
  kFloat64,
  kInt64,
  kUint64,
  kComplex128,  ///< safetensors has no name for it
};

/// Returns the bytes of one element.
std::size_t bytes_of(ElementType type);

/// Returns PyTorch's name, such as `float32`.
std::string_view torch_name(ElementType type);

/// Returns safetensors' name, such as `F32`; nothing for complex128.
std::optional<std::string_view> safetensors_name(ElementType type);

/// Finds the type that PyTorch calls so.
std::optional<ElementType> element_type_of_torch(std::string_view name);

/// Finds the type that safetensors calls so.
std::optional<ElementType> element_type_of_safetensors(std::string_view name);

/// One tensor of a file: row-major without gaps, little-endian.
///
/// The bytes live as long as the TensorFile or the buffer that they come from. They need not lie at
/// a multiple of their size: copy them (memcpy), never read them through a wider pointer.
struct TensorEntry {
  std::string name;
  ElementType type = ElementType::kFloat32;
  std::vector<std::int64_t> shape;
  std::span<const std::uint8_t> bytes;
};

/// Owns the bytes of tensors, and points to the mapped file if they lie in one.
using FileMemory = std::shared_ptr<const MappedFile>;

/// The named tensors of a file, and the memory in which they lie.
///
/// Copies share the memory. It is the file itself, mapped: if another program may change the file
/// while it is used, ask checked() or require_unchanged(). Replace files by renaming, as the
/// writers here do.
class TensorFile {
 public:
  /// Takes entries and what keeps their bytes alive. Two entries of one name are an
  /// InvalidArgument.
  TensorFile(std::vector<TensorEntry> entries, std::map<std::string, std::string> metadata,
      FileMemory memory);

  /// Returns the tensors in the order of the file's own list. Their bytes live as long as the
  /// TensorFile, so give it a name before you walk over them.
  const std::vector<TensorEntry>& entries() const& { return entries_; }
  const std::vector<TensorEntry>& entries() const&& = delete;

  /// Finds a tensor by its name; null if there is none. It lives as long as the TensorFile.
  const TensorEntry* find(std::string_view name) const;

  /// Returns safetensors' `__metadata__`; empty for a file of PyTorch.
  const std::map<std::string, std::string>& metadata() const& { return metadata_; }
  std::map<std::string, std::string> metadata() && { return std::move(metadata_); }

  /// Takes the tensors whose names begin with `prefix` and a dot, and leaves both out of the names.
  /// Names that the metadata has for tied weights become entries. None at all is an InvalidArgument
  /// that lists the prefixes there are.
  TensorFile part(std::string_view prefix) const;

  /// Throws DataError if the bytes are no longer those of the file that was opened.
  void require_unchanged() const {
    if (memory_ != nullptr) memory_->require_unchanged();
  }

  /// Takes no memory for the bytes of the file, until they are looked at again.
  void forget() const {
    if (memory_ != nullptr) memory_->forget(memory_->bytes());
  }

  /// Returns what `read` makes of the bytes, as MappedFile::checked() does.
  template <typename Read>
  auto checked(const Read& read) const {
    return memory_ == nullptr ? read() : memory_->checked(read);
  }

 private:
  std::vector<TensorEntry> entries_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, std::size_t, std::less<>> places_;
  FileMemory memory_;
};

/// Returns the bytes of a tensor; nothing if a size is negative, their product has no place in 63
/// bits, or there are more than 64 dimensions.
///
/// Sizes of 0 count as 1 for that bound: the strides of an empty tensor must not overflow, either.
std::optional<std::uint64_t> tensor_bytes(ElementType type, std::span<const std::int64_t> shape);

/// Returns a shape as `(2, 3)`.
std::string shape_text(std::span<const std::int64_t> shape);

/// Checks what a writer is given: bytes that fit type and shape, names in UTF-8, none twice.
/// Otherwise throws InvalidArgument that begins with `operation`.
void check_entries(const char* operation, std::span<const TensorEntry> entries);

/// Does so but for the bytes, which may be elsewhere.
void check_names_and_shapes(const char* operation, std::span<const TensorEntry> entries);

/// Returns whether elements of that shape and with these strides lie row-major without gaps.
bool is_contiguous(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides);

/// Returns behind which element of its storage a view ends: that of its last element, plus one;
/// `offset` is its first. An empty one ends at its offset. Nothing on overflow; no number may be
/// negative.
std::optional<std::uint64_t> view_end(std::uint64_t offset, std::span<const std::int64_t> shape,
    std::span<const std::int64_t> strides);

/// Copies the elements of a view row-major without gaps, such as those of channels last.
///
/// `from` begins with the view's first element; the caller has checked that shape and strides (in
/// elements, none negative) stay within it, and that `to` has the bytes of all elements. One
/// thread, no LibTorch: it runs beside a training step.
void copy_row_major(std::span<std::uint8_t> to, std::span<const std::uint8_t> from,
    std::span<const std::int64_t> shape, std::span<const std::int64_t> strides,
    std::size_t element_bytes);

}  // namespace lockstep
