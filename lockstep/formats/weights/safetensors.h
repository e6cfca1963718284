#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lockstep/formats/byte_stream.h"
#include "lockstep/formats/weights/tensor_file.h"

namespace lockstep {

/// Reads a safetensors file, mapped into memory.
///
/// Every rule of the format is held: a header of at most 100 MB that starts with `{`, no key twice,
/// metadata of strings, known types, tensors that cover the rest of the file without hole or
/// overlap. What breaks one is a DataError with file, offset and reason.
TensorFile read_safetensors(const std::filesystem::path& path);

/// Does the same with bytes in memory, which must outlive the result; `name` stands in messages.
TensorFile parse_safetensors(std::span<const std::uint8_t> bytes, const std::string& name);

/// Writes a safetensors file into a sink, piece by piece: no tensor is copied, and the same
/// arguments give the same bytes.
///
/// The header lists the tensors in the given order. Their bytes lie by type, widest first, then by
/// name, as those of the format's own library do: so each is aligned, and entries in that order
/// give that library's file, byte for byte. A tensor whose bytes do not fit type and shape, a type
/// that the format lacks, a name twice or not UTF-8, or a header above 100 MB is an
/// InvalidArgument.
void write_safetensors(ByteSink& sink, std::span<const TensorEntry> entries,
    const std::map<std::string, std::string>& metadata = {});

/// Writes the header alone, for tensors whose bytes need not be in memory together: those of the
/// entries are not looked at. Returns the places of the entries in the order in which all bytes of
/// each must follow.
std::vector<std::size_t> write_safetensors_header(ByteSink& sink,
    std::span<const TensorEntry> entries, const std::map<std::string, std::string>& metadata = {});

}  // namespace lockstep
