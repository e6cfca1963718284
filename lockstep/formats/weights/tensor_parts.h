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

/// The elements [begin, end) of a tensor of the sizes `whole`, in its row-major order: those that
/// one of several owners holds.
struct TensorRange {
  std::vector<std::int64_t> whole;
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  std::int64_t elements() const;  ///< of the whole

  bool operator==(const TensorRange&) const = default;
};

/// The ranges of tensors by their names. The tensors have one dimension then, of size() elements.
using TensorRanges = std::map<std::string, TensorRange, std::less<>>;

/// The key in the metadata of a safetensors file that says which of its tensors are parts.
inline constexpr const char* kTensorParts = "lockstep.parts";

/// Writes the value of that key: `{"fc.weight":{"whole":[10,27],"begin":40,"end":80}}`.
std::string to_json(const TensorRanges& ranges);

/// Reads which tensors of a file are parts; none if all are whole. A text that is not as to_json()
/// writes it, a range beyond its tensor, without elements or with all of them, and a name that the
/// file lacks or holds in another shape are a DataError that begins with `file`.
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
  std::vector<Piece> pieces;  ///< that follow each other; one that is whole, even if empty

  /// Copies the elements from `begin` on that `to` has room for, which must be there.
  void copy(std::int64_t begin, std::span<std::uint8_t> to) const;
};

/// A file of tensors and its name in messages.
struct NamedTensorFile {
  std::string name;
  const TensorFile* tensors = nullptr;
};

/// Finds all tensors of several files, in the order in which they first come; their bytes live as
/// long as the files. Parts of one name become one tensor: they must be of one type and one whole
/// shape, and cover it without gap or overlap. Otherwise a DataError names tensor, elements and
/// files.
std::vector<JoinedTensor> join_parts(std::span<const NamedTensorFile> files);

/// Writes them whole into one safetensors file, piece by piece: none is in memory as a whole.
void write_safetensors(ByteSink& sink, std::span<const JoinedTensor> tensors,
    const std::map<std::string, std::string>& metadata = {});

}  // namespace lockstep
