#include <algorithm>
#include <zlib.h>

#include "lockstep/formats/byte_fields.h"
#include "lockstep/formats/weights/zip_archive.h"
#include "lockstep/formats/weights/zip_records.h"

namespace lockstep {
namespace {

constexpr std::uint64_t kAlignment = 64;
constexpr int kVersion = 45;          // 64-bit sizes
constexpr int kFillerField = 0x4246;  // "FB", the extra field that PyTorch fills up with

std::uint32_t narrow32(std::uint64_t number) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(number, zip::kElsewhere32));
}

/// Returns the extra field with those of the numbers that have no place in 32 bits.
std::string wide_field(std::initializer_list<std::uint64_t> numbers) {
  std::string wide;
  for (const std::uint64_t number : numbers) {
    if (number >= zip::kElsewhere32) append_little_endian(wide, number, 8);
  }
  if (wide.empty()) return wide;
  std::string field;
  append_little_endian(field, zip::kZip64Field, 2);
  append_little_endian(field, wide.size(), 2);
  return field + wide;
}

/// Returns an extra field that makes the file's bytes begin at a multiple of kAlignment, if they
/// would begin at `offset` without it.
std::string filler(std::uint64_t offset) {
  const std::uint64_t size = (2 * kAlignment - (offset + 4) % kAlignment) % kAlignment;
  std::string field;
  append_little_endian(field, kFillerField, 2);
  append_little_endian(field, size, 2);
  return field + std::string(size, 'Z');
}

/// Returns what both headers of a file share: from the version that is needed to the extra's
/// length.
std::string shared_fields(
    std::uint32_t checksum, std::uint64_t size, std::size_t name_bytes, std::size_t extra_bytes) {
  std::string fields;
  append_little_endian(fields, kVersion, 2);
  append_little_endian(fields, 0, 2 + 2 + 4);  // no flags, stored, no time, so that runs agree
  append_little_endian(fields, checksum, 4);
  append_little_endian(fields, narrow32(size), 4);
  append_little_endian(fields, narrow32(size), 4);
  append_little_endian(fields, name_bytes, 2);
  append_little_endian(fields, extra_bytes, 2);
  return fields;
}

std::string signed_with(std::uint32_t signature) {
  std::string record;
  append_little_endian(record, signature, 4);
  return record;
}

}  // namespace

void ZipWriter::add(const std::string& name, std::span<const std::uint8_t> bytes) {
  const auto checksum = static_cast<std::uint32_t>(crc32_z(0, bytes.data(), bytes.size()));
  const std::uint64_t size = bytes.size();
  // Both sizes are wide if one is.
  std::string extra = wide_field({size, size});
  extra += filler(offset_ + zip::kLocalBytes + name.size() + extra.size());

  const std::string wide = wide_field({size, size, offset_});
  directory_ += signed_with(zip::kCentralSignature);
  append_little_endian(directory_, kVersion, 2);
  directory_ += shared_fields(checksum, size, name.size(), wide.size());
  append_little_endian(directory_, 0, 2 + 2 + 2);  // no comment, disk 0, no internal attributes
  append_little_endian(directory_, 0, 4);          // no external attributes
  append_little_endian(directory_, narrow32(offset_), 4);
  directory_ += name + wide;
  ++entries_;

  write(signed_with(zip::kLocalSignature) +
        shared_fields(checksum, size, name.size(), extra.size()) + name + extra);
  sink_.write(bytes);
  offset_ += size;
}

void ZipWriter::add(const std::string& name, const std::string& text) {
  add(name, std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
}

// The 64-bit end is always there, as PyTorch has it, so that large archives differ in nothing.
void ZipWriter::finish() {
  const std::uint64_t start = offset_;
  const std::uint64_t end = start + directory_.size();
  std::string records = signed_with(zip::kEnd64Signature);
  append_little_endian(records, zip::kEnd64Bytes - 12, 8);
  append_little_endian(records, kVersion, 2);
  append_little_endian(records, kVersion, 2);
  append_little_endian(records, 0, 4 + 4);  // disk 0, directory on disk 0
  for (const std::uint64_t number : {entries_, entries_, end - start, start}) {
    append_little_endian(records, number, 8);
  }
  records += signed_with(zip::kLocatorSignature);
  append_little_endian(records, 0, 4);
  append_little_endian(records, end, 8);
  append_little_endian(records, 1, 4);  // one disk
  records += signed_with(zip::kEndSignature);
  append_little_endian(records, 0, 2 + 2);
  for (int i = 0; i < 2; ++i) {
    append_little_endian(records, std::min<std::uint64_t>(entries_, zip::kElsewhere16), 2);
  }
  append_little_endian(records, narrow32(end - start), 4);
  append_little_endian(records, narrow32(start), 4);
  append_little_endian(records, 0, 2);  // no comment
  write(directory_ + records);
}

void ZipWriter::write(const std::string& record) {
  sink_.write(record);
  offset_ += record.size();
}

}  // namespace lockstep
