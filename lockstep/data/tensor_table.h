#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/formats/weights/tensor_file.h"

namespace lockstep::data {

/// The types that a model takes.
enum class SampleType { kFloat, kInt64, kUint8, kBool };

/// Some of the rows of a column, which lie in one file, one behind the other.
struct ColumnPiece {
  std::shared_ptr<const TensorFile> file;  ///< keeps the bytes
  std::string name;                        ///< of the file, for messages
  std::int64_t first = 0;                  ///< its first row in the column
  std::int64_t rows = 0;
  std::span<const std::uint8_t> bytes = {};
};

/// A tensor of a table: of each sample a row of numbers.
struct TensorColumn {
  std::string name;
  ElementType type = ElementType::kFloat32;  ///< in the files
  SampleType taken_as = SampleType::kFloat;  ///< by a model
  std::vector<std::int64_t> sizes = {};      ///< of one sample
  std::vector<ColumnPiece> pieces = {};      ///< none of them empty
  std::int64_t vocabulary = 0;  ///< tokens are below, and none is negative; 0: any number

  std::int64_t rows() const;
  std::int64_t elements() const;  ///< of a row
  std::size_t row_bytes() const { return static_cast<std::size_t>(elements()) * bytes_of(type); }
};

/// The bytes of a row, and the piece in which they lie.
struct TensorRow {
  const ColumnPiece* piece = nullptr;
  std::span<const std::uint8_t> bytes;
};

/// Returns a row of a column; the index must be in [0, rows()).
TensorRow row_of(const TensorColumn& column, std::int64_t index);

/// A part of a set that lies in files of tensors: columns with as many rows as there are samples.
struct TensorTable {
  std::vector<TensorColumn> inputs = {};
  std::vector<TensorColumn> targets = {};  ///< there may be none

  std::int64_t rows() const { return inputs.front().rows(); }
};

/// The parts of a set that lies in files of tensors; those that are there have the same columns.
struct TensorTables {
  TensorTable train;
  std::optional<TensorTable> validation = {}, test = {};
  /// The number of classes, where the one target is a whole number a sample and none is negative
  /// but kIgnoredTarget; 0 otherwise. Bytes of a text have 256, tokens a vocabulary.
  std::int64_t classes = 0;
  std::vector<std::string> remarks = {};  ///< on what is not read, or not as it lies there
};

/// Returns the parts that there are, that to train with first.
std::vector<const TensorTable*> parts_of(const TensorTables& tables);

/// The tensors that are inputs and targets; where there are none, names decide.
struct TensorChoice {
  std::vector<std::string> inputs = {};
  std::vector<std::string> targets = {};
};

/// Opens a set of tensors: safetensors, `.npz`, and `.npy`, whose file's name is that of its
/// tensor. Nothing is read but headers, the checksums of `.npz`, and the target that may be
/// classes.
///
/// `paths` are files and folders with commas between them; a folder stands for its files, by name.
/// Tensors of one name are joined in the order of files, along the first dimension; those of other
/// names are further columns, and all must have as many rows.
///
/// A file belongs to the part that a word of its name says (part_of_file()). In a file without such
/// a word, tensors may begin or end with one, as `x_train` does, and are called `x` then. What has
/// no word is to train with.
///
/// Tensors called `target`, `targets`, `label`, `labels`, `y`, or `target.` or `label.` and more,
/// in whatever case, are targets, all others inputs, in the order of the files and of each file's
/// own list; unless `choice` names them. Names that `choice` leaves out of both are not read.
///
/// Float64 is rounded to float, all whole numbers become int64, but for inputs of uint8. Throws
/// DataError for other types, and for files, names and shapes that do not fit; InvalidArgument for
/// a path that is not there, or a name that no tensor has.
TensorTables open_tensors(const std::string& paths, const TensorChoice& choice = {});

/// The kinds of files that are cut into sequences: of tokens, or of any bytes.
enum class SequenceKind { kTokens, kText };

/// Opens files of tokens (`read_tokens()`), or texts, cut into sequences: of `length` tokens as the
/// input `input`, and as many that follow by one as `target`.
///
/// Sequences lie one behind the other in each file. What remains at a file's end and is no whole
/// sequence is not read: a remark says how much. Paths and parts are those of open_tensors(); in
/// folders only `.bin` and `.npy`, or `.txt`, are taken.
///
/// Tokens are checked against the `vocabulary` when they are read, 0 is any. Without one it is 256
/// for texts, and otherwise the largest token and one, which must not be above 2^24: all files are
/// read for it, and a remark says so.
TensorTables open_sequences(const std::string& paths, SequenceKind kind, std::int64_t length,
    std::optional<std::int64_t> vocabulary = {});

/// Opens the same files uncut: the one column `tokens` of numbers, and no target.
TensorTables open_tokens(const std::string& paths, SequenceKind kind);

}  // namespace lockstep::data
