#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/formats/weights/tensor_file.h"
#include "lockstep/formats/weights/torch_value.h"

namespace lockstep {

/// Holds what Python's `torch.save` wrote, and the memory in which its tensors lie (mapped as those
/// of a TensorFile).
struct TorchFile {
  std::string name;  ///< for messages
  TorchValue value;
  std::shared_ptr<const void> memory;
};

/// Reads a file of Python's `torch.save`: state dictionaries, checkpoints, optimizer states.
///
/// Nothing in the file is executed: of callables it may name `OrderedDict`, and those that rebuild
/// tensors and parameters; any other is a DataError with its name. The checksum of every part is
/// verified. Files of PyTorch before 1.6 and TorchScript are refused with what to do.
TorchFile read_torch_file(const std::filesystem::path& path);

/// Does the same with bytes in memory, which must outlive the result; `name` stands in messages.
TorchFile parse_torch_file(std::span<const std::uint8_t> bytes, const std::string& name);

/// Gives the tensors below `only` (of the whole file if empty), their names joined by dots; values
/// that are no tensors are a DataError that names them. An entry of a list has its index as name.
TensorFile tensors_of(const TorchFile& file, std::string_view only = "");

/// Writes name -> tensor as an OrderedDict that Python's `torch.load` reads with its default
/// `weights_only=True`: complete or not there, the same bytes for the same arguments.
///
/// A tensor whose bytes do not fit type and shape, or a name twice or not UTF-8, is an
/// InvalidArgument.
void write_torch_file(const std::filesystem::path& path, std::span<const TensorEntry> entries);

}  // namespace lockstep
