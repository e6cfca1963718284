#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/formats/weights/tensor_file.h"

namespace lockstep {

/// The kinds of weight files.
enum class WeightFormat { kSafetensors, kTorch };

/// Returns what a file is by its first bytes; what is neither counts as safetensors, whose reader
/// says what is wrong with it.
WeightFormat weight_format_of_content(const std::filesystem::path& path);

/// Returns what a file is to be by its extension: `.safetensors`, or `.pt`, `.pth` or `.bin` for
/// PyTorch's. Another is an InvalidArgument.
WeightFormat weight_format_of_extension(const std::filesystem::path& path);

/// Reads the tensors of a safetensors file or of a file that Python's `torch.save` wrote; which it
/// is, its content says.
///
/// `only` takes a part, as in `{"state_dict": {...}, "epoch": 3}`: read_weights(path, "state_dict")
/// gives the tensors below it, named without it. What is read must consist of tensors: other values
/// (numbers, texts) are a DataError that names them, and so are parts of tensors. A file that
/// breaks its format's rules is a DataError with file, offset and reason; nothing in a file is
/// executed.
///
///     auto weights = lockstep::read_weights("resnet18.pth");
///     const auto* entry = weights.find("fc.weight");   // entry->shape is {1000, 512}
TensorFile read_weights(const std::filesystem::path& path, std::string_view only = "");

/// Writes the kind of file that the extension says: complete or not there. PyTorch's has no place
/// for metadata: there it must be empty.
void write_weights(const std::filesystem::path& path, std::span<const TensorEntry> entries,
    const std::map<std::string, std::string>& metadata = {});

/// Does the same with the tensors of a file; if that changes meanwhile, nothing is written and it
/// is a DataError.
void write_weights(const std::filesystem::path& path, const TensorFile& tensors,
    const std::map<std::string, std::string>& metadata = {});

}  // namespace lockstep
