#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/formats/weights/tensor_file.h"

namespace lockstep {

/// The bytes with which files of `numpy.save` begin.
inline constexpr std::string_view kNpyMagic = "\x93NUMPY";

/// Reads an array that Python's `numpy.save` wrote, mapped into memory: a file of one tensor, which
/// has the given name.
///
/// Versions 1 to 3 of the format are read: numbers, little-endian and row by row. Arrays of other
/// types (Python's objects, records, texts, dates), big-endian ones, and those that lie column by
/// column are a DataError that says how to save them; so is whatever breaks the format, with offset
/// and reason.
TensorFile read_npy(const std::filesystem::path& path, const std::string& name);

/// Does the same with bytes in memory, which must outlive the result; `file` stands in messages.
TensorEntry parse_npy(
    std::span<const std::uint8_t> bytes, const std::string& name, const std::string& file);

/// Reads the arrays of a file of `numpy.savez`, mapped, under their names and in their order.
///
/// All of it is read once, since a zip archive has checksums. One of `numpy.savez_compressed`
/// cannot be mapped: it is a DataError that says how to save it.
TensorFile read_npz(const std::filesystem::path& path);

}  // namespace lockstep
