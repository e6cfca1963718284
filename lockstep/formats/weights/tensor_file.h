#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/formats/input_file.h"
#include "lockstep/formats/weights/element_type.h"

namespace lockstep {

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

}  // namespace lockstep
