#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>
#include <zlib.h>

#include "lockstep/formats/idx.h"

namespace lockstep::testing {

using Bytes = std::vector<std::uint8_t>;

/// Makes an IDX file of unsigned bytes as the format's definition says, whether or not the values
/// fit the counts.
inline Bytes idx_bytes(const std::vector<std::uint32_t>& counts, const Bytes& values) {
  Bytes bytes{0, 0, 8, static_cast<std::uint8_t>(counts.size())};
  for (const std::uint32_t count : counts) {
    for (const int shift : {24, 16, 8, 0})
      bytes.push_back(static_cast<std::uint8_t>(count >> shift));
  }
  bytes.insert(bytes.end(), values.begin(), values.end());
  return bytes;
}

/// Returns the content of a file.
inline Bytes file_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Makes one gzip member; level 0 stores without compressing.
inline Bytes gzip(const Bytes& bytes, int level = 6) {
  z_stream stream{};
  if (deflateInit2(&stream, level, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::runtime_error("deflateInit2");
  }
  Bytes member(deflateBound(&stream, bytes.size()) + 32);
  stream.next_in = const_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = member.data();
  stream.avail_out = static_cast<uInt>(member.size());
  const int status = deflate(&stream, Z_FINISH);
  member.resize(stream.total_out);
  deflateEnd(&stream);
  if (status != Z_STREAM_END) throw std::runtime_error("deflate");
  return member;
}

/// Returns the first bytes.
inline Bytes cut(const Bytes& bytes, std::size_t size) {
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)};
}

inline Bytes joined(Bytes front, const Bytes& back) {
  front.insert(front.end(), back.begin(), back.end());
  return front;
}

/// Reads plain IDX bytes by the letter of the format, the slow way; nothing if they are not exactly
/// one array.
inline std::optional<IdxArray> reference_idx(std::span<const std::uint8_t> bytes, int dimensions,
    std::uint64_t maximum_bytes = kMaximumIdxBytes) {
  const std::size_t header = 4 + 4 * static_cast<std::size_t>(dimensions);
  if (bytes.size() < header) return std::nullopt;
  if (bytes[0] != 0 || bytes[1] != 0 || bytes[2] != 8 || bytes[3] != dimensions)
    return std::nullopt;
  IdxArray array;
  long double product = 1;
  for (std::size_t at = 4; at < header; at += 4) {
    const std::uint32_t count = static_cast<std::uint32_t>(bytes[at]) * 16777216U +
                                bytes[at + 1] * 65536U + bytes[at + 2] * 256U + bytes[at + 3];
    array.shape.push_back(count);
    product *= count;
  }
  const bool is_exact = product == static_cast<long double>(bytes.size() - header);
  if (product == 0 || product > static_cast<long double>(maximum_bytes) || !is_exact)
    return std::nullopt;
  array.values.assign(bytes.begin() + static_cast<std::ptrdiff_t>(header), bytes.end());
  return array;
}

}  // namespace lockstep::testing
