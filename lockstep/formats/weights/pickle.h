#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/formats/weights/tensor_file.h"

// What a pickle builds while it is read. Values may be shared, and a hostile pickle makes lists
// that contain themselves, so the objects belong to an arena and refer to each other.

namespace lockstep::pickle {

struct Tuple;
struct List;
struct Dict;
struct Name;
struct Storage;
struct Tensor;

using Text = const std::string*;

/// A value of Python; monostate is None.
using Value = std::variant<std::monostate, bool, std::int64_t, double, Text, const Tuple*, List*,
    Dict*, const Name*, const Storage*, const Tensor*>;

struct Tuple {
  std::vector<Value> items;
};

struct List {
  std::vector<Value> items;
};

/// Its items in the order of the pickle; a key that comes twice is there twice, and keys are of any
/// kind.
struct Dict {
  bool is_ordered = false;
  bool is_module = false;  ///< that C++ saved
  std::vector<std::pair<Value, Value>> items;
};

/// A class or a function of Python, such as `torch._utils _rebuild_tensor_v2`, or what one makes
/// that is not known here, such as `argparse Namespace`: it has its name and nothing else.
struct Name {
  std::string text;
};

/// The part of the file in which a tensor's elements lie.
struct Storage {
  std::optional<ElementType> type;  ///< none: the tensor says it
  std::string key;
  std::uint64_t bytes = 0;
};

/// A view into a storage; offset and strides count elements and stay within it.
struct Tensor {
  ElementType type = ElementType::kFloat32;
  const Storage* storage = nullptr;
  std::uint64_t offset = 0;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
};

/// The objects of a pickle.
struct Arena {
  std::deque<std::string> texts;
  std::deque<Tuple> tuples;
  std::deque<List> lists;
  std::deque<Dict> dicts;
  std::deque<Name> names;
  std::deque<Storage> storages;
  std::deque<Tensor> tensors;
};

/// Describes a value for messages: `a dict`, `the name torch.float32`.
std::string kind_of(const Value& value);

/// The content of a pickle.
struct Pickle {
  std::unique_ptr<Arena> arena;
  Value root;
};

/// The most values of a pickle, 16 bytes each; one kept by number counts as three. torch.save makes
/// about 40 for a tensor, a hostile pickle one for each of its bytes.
inline constexpr std::uint64_t kMostValues = std::uint64_t{1} << 22;

/// Reads a pickle of protocol 2 to 5 as torch.save writes it, by torch_rules.h; nothing is
/// executed.
///
/// Only the opcodes that checkpoints need are known. A pickle that uses another, or breaks
/// the rules of one, is a DataError with `file` and the offset, counted from `file_offset`. Memory
/// grows with the bytes that were read: lengths are compared with what is left before they are
/// believed, and there are at most kMostValues.
Pickle read_pickle(
    std::span<const std::uint8_t> bytes, const std::string& file, std::uint64_t file_offset);

}  // namespace lockstep::pickle
