#include "tests/formats/fetch/archive_bytes.h"

#include <algorithm>
#include <cstdio>

namespace lockstep::testing {
namespace {

constexpr std::size_t kBlock = 512;

void put(Bytes& bytes, std::size_t at, const std::string& text) {
  std::copy(text.begin(), text.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
}

std::string octal(std::uint64_t number, int digits) {
  char text[32];
  std::snprintf(text, sizeof(text), "%0*llo", digits, static_cast<unsigned long long>(number));
  return text;
}

/// The sum counts its own field as spaces.
void put_checksum(Bytes& header) {
  put(header, 148, "        ");
  std::uint64_t sum = 0;
  for (const std::uint8_t byte : header) sum += byte;
  put(header, 148, octal(sum, 6) + std::string(1, '\0'));
}

void append(Bytes& bytes, const std::string& text) {
  bytes.insert(bytes.end(), text.begin(), text.end());
}

void append_block(Bytes& bytes, const std::string& data) {
  append(bytes, data);
  bytes.resize((bytes.size() + kBlock - 1) / kBlock * kBlock);
}

}  // namespace

Bytes tar_header(const TarEntry& entry, std::uint64_t size) {
  Bytes header(kBlock);
  put(header, 0, entry.name.substr(0, 100));
  put(header, 100, octal(entry.mode, 7));
  put(header, 124, octal(size, 11));
  header[156] = static_cast<std::uint8_t>(entry.type);
  put(header, 157, entry.link.substr(0, 100));
  put(header, 257, std::string("ustar\0", 6) + "00");
  put_checksum(header);
  return header;
}

Bytes tar_bytes(const std::vector<TarEntry>& entries) {
  Bytes bytes;
  for (const TarEntry& entry : entries) {
    if (entry.name.size() > 100) {  // GNU's way: an entry of type L that holds the name
      const Bytes header = tar_header({.name = "././@LongLink", .type = 'L'}, entry.name.size());
      bytes.insert(bytes.end(), header.begin(), header.end());
      append_block(bytes, entry.name);
    }
    const Bytes header = tar_header(entry, entry.data.size());
    bytes.insert(bytes.end(), header.begin(), header.end());
    append_block(bytes, entry.data);
  }
  bytes.resize(bytes.size() + 2 * kBlock);
  return bytes;
}

Bytes with_true_tar_checksums(Bytes bytes) {
  for (std::size_t at = 0; at + kBlock <= bytes.size(); at += kBlock) {
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    Bytes block(begin, begin + kBlock);
    const std::string magic(block.begin() + 257, block.begin() + 262);
    if (magic != "ustar") continue;
    put_checksum(block);
    std::copy(block.begin(), block.end(), begin);
  }
  return bytes;
}

Bytes sparse_tar_bytes(const std::string& name, std::uint64_t size) {
  Bytes header = tar_header({.name = name, .type = 'S'}, kBlock);
  put(header, 257, std::string("ustar  \0", 8));  // GNU's own magic
  put(header, 386, octal(0, 11));
  put(header, 398, octal(kBlock, 11));
  put(header, 410, octal(size, 11));
  put(header, 422, octal(0, 11));
  put(header, 483, octal(size, 11));
  put_checksum(header);
  append_block(header, std::string(kBlock, 'x'));
  header.resize(header.size() + 2 * kBlock);
  return header;
}

}  // namespace lockstep::testing
