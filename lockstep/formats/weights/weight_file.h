#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/formats/weights/tensor_file.h"

namespace lockstep {

/// Reads the tensors of a safetensors file or of a file that Python's `torch.save` wrote; which it
/// is, its content says.
///
/// `only` takes a part, as in `{"state_dict": {...}, "epoch": 3}`: read_weights(path, "state_dict")
/// gives the tensors below it, named without it. What is read must consist of tensors: other values
/// (numbers, texts) are a DataError that names them. A file that breaks its format's rules is a
/// DataError with file, offset and reason; nothing in a file is executed.
///
///     auto weights = lockstep::read_weights("resnet18.pth");
///     const auto* entry = weights.find("fc.weight");   // entry->shape is {1000, 512}
TensorFile read_weights(const std::filesystem::path& path, std::string_view only = "");

/// Writes a safetensors file (`.safetensors`) or one that Python's `torch.load` reads (`.pt`,
/// `.pth`, `.bin`); another extension is an InvalidArgument. The file is complete or not there.
void write_weights(
    const std::filesystem::path& path,
    std::span<const TensorEntry> entries,
    const std::map<std::string, std::string>& metadata = {});

}  // namespace lockstep
