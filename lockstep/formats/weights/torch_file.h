#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/formats/byte_stream.h"
#include "lockstep/formats/weights/tensor_file.h"

namespace lockstep {

struct TorchValue;
struct TorchItem;

/// A tensor that torch.save wrote: row-major without gaps, whatever strides it had there.
struct TorchTensor {
  ElementType type = ElementType::kFloat32;
  std::vector<std::int64_t> shape;
  std::span<const std::uint8_t> bytes;
};

/// A list or a tuple of Python.
struct TorchList {
  std::vector<TorchValue> items;
};

/// The key of a dict: a text, or a number as in an optimizer's state.
using TorchKey = std::variant<std::int64_t, std::string>;

/// A dict or an OrderedDict of Python, in its order; no key comes twice.
struct TorchDict {
  std::vector<TorchItem> items;
};

/// Something of Python that is not read, such as an object of a class: what it is, in words.
struct TorchOther {
  std::string what;
};

/// A value that torch.save wrote; monostate is Python's None.
struct TorchValue {
  std::variant<std::monostate, bool, std::int64_t, double, std::string, TorchList, TorchDict,
      TorchTensor, TorchOther>
      content;
};

/// An entry of a dict.
struct TorchItem {
  TorchKey key;
  TorchValue value;
};

/// The content of a file of Python's `torch.save`, and the memory in which its tensors lie (mapped
/// as those of a TensorFile).
struct TorchFile {
  std::string name;  ///< for messages
  TorchValue value;
  FileMemory memory;
};

/// Reads a file of Python's `torch.save`: state dictionaries, checkpoints, optimizer states; and of
/// C++'s, where a module is the dict of its tensors and of the modules in it that have tensors.
///
/// Nothing in the file is executed: what callables make is built here for `OrderedDict`,
/// `defaultdict`, and those that rebuild tensors and parameters; of any other there is only the
/// name. The checksum of every part is verified, but of code, which is not read. Files of PyTorch
/// before 1.6 and TorchScript of Python are refused with what to do.
TorchFile read_torch_file(const std::filesystem::path& path);

/// Does the same with bytes in memory, which must outlive the result; `name` stands in messages.
TorchFile parse_torch_file(std::span<const std::uint8_t> bytes, const std::string& name);

/// A DataError about a file with tensors and other values, such as a checkpoint: it begins with the
/// parts that can be taken.
struct MixedContent : DataError {
  MixedContent(const std::string& file, std::vector<std::string> parts, std::string rest);

  /// Returns the message without the file, with a flag before each part.
  std::string advice(const std::string& flag) const;

  std::vector<std::string> parts;  ///< hold tensors alone: name in quotes, how many
  std::string rest;                ///< says what else is there
};

/// Returns the tensors below `only` (of the whole file if empty), their names joined by dots; if
/// there are other values, too, MixedContent is thrown. An entry of a list has its index as name.
TensorFile tensors_of(const TorchFile& file, std::string_view only = "");

/// Writes name -> tensor as an OrderedDict that Python's `torch.load` reads with its default
/// `weights_only=True`; the same arguments give the same bytes.
///
/// A tensor whose bytes do not fit type and shape, a name that is empty, twice there or not UTF-8,
/// and more tensors than read_torch_file() takes (some 100,000) are an InvalidArgument.
void write_torch_file(ByteSink& sink, std::span<const TensorEntry> entries);

}  // namespace lockstep
