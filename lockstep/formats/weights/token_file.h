#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "lockstep/formats/weights/tensor_file.h"

namespace lockstep {

/// Reads a file of tokens, mapped: one tensor `tokens` of one dimension, of integers.
///
/// Three forms are known by their first bytes: llm.c's, whose header of 256 int32 counts the tokens
/// (magic 20240520, version 1: uint16; 20240801, version 7: uint32); an array of integers by
/// `numpy.save`; and nanoGPT's, tokens from the first byte on, which are uint16, or uint32 where
/// the file's name says so, as in `train.uint32.bin`. A header that does not fit the file, a number
/// of bytes that is no number of tokens, and what looks like uint32 but is not named so are a
/// DataError with offset and reason.
TensorFile read_tokens(const std::filesystem::path& path);

/// Does the same with bytes in memory, which must outlive the result; `file` is the name.
TensorEntry parse_tokens(std::span<const std::uint8_t> bytes, const std::string& file);

/// Reads any file as tokens: its bytes, uint8.
TensorFile read_bytes_as_tokens(const std::filesystem::path& path);

}  // namespace lockstep
