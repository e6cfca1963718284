#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lockstep/formats/byte_stream.h"
#include "lockstep/formats/weights/tensor_file.h"

namespace lockstep {

/// The elements [begin, end) of a tensor of the sizes `whole`: those that one of several owners
/// holds.
struct TensorRange {
  std::vector<std::int64_t> whole;
  /// The dimensions from the outermost to the innermost, by which elements are counted: those of
  /// memory_order(). None: row-major.
  std::vector<std::int64_t> order = {};
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  std::int64_t elements() const;  ///< of the whole
  /// Returns the sizes of the part as a tensor: as many dimensions as the whole, all but the last
  /// of size 1. So rules that go by the number of dimensions hold for parts, too.
  std::vector<std::int64_t> sizes() const;

  bool operator==(const TensorRange&) const = default;
};

/// Returns the order in which the elements of a tensor without holes lie in memory, such as {0, 2,
/// 3, 1} in channels last; none if that is row-major.
std::vector<std::int64_t> memory_order(
    std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides);

/// Returns the strides of a tensor whose elements lie in that order, without holes.
std::vector<std::int64_t> strides_of(
    std::span<const std::int64_t> sizes, std::span<const std::int64_t> order);

/// The ranges of tensors by their names.
using TensorRanges = std::map<std::string, TensorRange, std::less<>>;

/// The key in the metadata of a safetensors file that says which of its tensors are parts.
inline constexpr const char* kTensorParts = "lockstep.parts";

/// Writes the value of that key: `{"fc.weight":{"whole":[10,27],"begin":40,"end":80}}`, with an
/// "order" where there is one.
std::string to_json(const TensorRanges& ranges);

/// Reads which tensors of a file are parts, of one dimension; none if all are whole. A text that is
/// not as to_json() writes it, a range beyond its tensor, without elements or with all of them, and
/// a name that the file lacks or holds in another shape are a DataError that begins with `file`.
TensorRanges ranges_in(const TensorFile& tensors, const std::string& file);

/// A tensor that lies in one file or, part by part, in several.
struct JoinedTensor {
  struct Piece {
    std::int64_t begin = 0;  ///< its first element
    std::size_t file = 0;    ///< the place of its file
    std::span<const std::uint8_t> bytes;
  };

  std::string name;
  ElementType type = ElementType::kFloat32;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> order;  ///< in which the elements are counted, as of a TensorRange
  std::vector<Piece> pieces;        ///< that follow each other; one that is whole, even if empty

  /// Copies the elements from `begin` on that `to` has room for, which must be there.
  void copy(std::int64_t begin, std::span<std::uint8_t> to) const;
};

/// A file of tensors and its name in messages.
struct NamedTensorFile {
  std::string name;
  const TensorFile* tensors = nullptr;
};

/// Finds all tensors of several files, in the order in which they first come; their bytes live as
/// long as the files. Parts of one name become one tensor: they must be of one type, whole shape
/// and order, and cover it without gap or overlap. Otherwise a DataError names tensor, elements and
/// files.
std::vector<JoinedTensor> join_parts(std::span<const NamedTensorFile> files);

/// Writes them whole into one safetensors file, piece by piece: none is in memory as a whole, but
/// for one at a time that is not row-major.
void write_safetensors(ByteSink& sink, std::span<const JoinedTensor> tensors,
    const std::map<std::string, std::string>& metadata = {});

}  // namespace lockstep
