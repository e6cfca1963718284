#include <algorithm>
#include <zlib.h>

#include "lockstep/core/text.h"
#include "lockstep/formats/weights/zip_archive.h"
#include "lockstep/formats/weights/zip_records.h"

namespace lockstep {
namespace {

using zip::DirectoryEntry;
using zip::Fields;

/// Returns whether a size in a file's own header fits the directory; a descriptor or an extra field
/// may hold it instead.
bool fits(std::uint64_t here, std::uint64_t size, bool has_descriptor) {
  return here == size || here == zip::kElsewhere32 || (has_descriptor && here == 0);
}

/// Reads a file's own header, compares it with the directory, and gives the place of its bytes.
std::uint64_t data_offset(
    std::span<const std::uint8_t> files, const DirectoryEntry& entry, const std::string& file) {
  Fields fields(files, entry.header, file);
  const bool has_descriptor = (entry.flags & zip::kHasDescriptor) != 0;
  bool is_same = fields.u32() == zip::kLocalSignature;
  fields.take(2);  // version needed to read
  is_same &= fields.u16() == entry.flags;
  is_same &= fields.u16() == entry.method;
  fields.take(4);  // time and date
  const std::uint32_t checksum = fields.u32();
  is_same &= checksum == entry.checksum || (has_descriptor && checksum == 0);
  is_same &= fits(fields.u32(), entry.stored, has_descriptor);
  is_same &= fits(fields.u32(), entry.size, has_descriptor);
  const std::uint16_t name_bytes = fields.u16();
  const std::uint16_t extra_bytes = fields.u16();
  is_same &= fields.text(name_bytes) == entry.name;
  if (!is_same) {
    refuse_at(file, entry.header, printable(entry.name),
        ": its own header is not what the zip directory says");
  }
  fields.take(extra_bytes);
  return fields.offset();
}

/// Checks what lies between a file's bytes and the next header: nothing, or a descriptor that says
/// what the directory says, with or without signature, in 32 or 64 bits.
void check_descriptor(std::span<const std::uint8_t> between, std::uint64_t offset,
    const DirectoryEntry& entry, const std::string& file) {
  bool is_right = between.empty();
  if ((entry.flags & zip::kHasDescriptor) != 0) {
    const std::size_t signature = between.size() % 8 == 0 ? 4 : 0;
    const std::size_t width = between.size() > 16 ? 8 : 4;
    is_right = between.size() == signature + 4 + 2 * width;
    if (is_right) {
      Fields fields(between, 0, file);
      is_right &= signature == 0 || fields.u32() == zip::kDescriptorSignature;
      is_right &= fields.u32() == entry.checksum;
      is_right &= fields.number(width) == entry.stored;
      is_right &= fields.number(width) == entry.size;
    }
  }
  if (!is_right) {
    refuse_at(file, offset, printable(entry.name), ": the ", between.size(),
        " bytes behind it are not what a zip archive has there");
  }
}

void check_checksum(std::span<const std::uint8_t> bytes, std::uint64_t offset,
    const DirectoryEntry& entry, const std::string& file) {
  const auto checksum = static_cast<std::uint32_t>(crc32_z(0, bytes.data(), bytes.size()));
  if (checksum != entry.checksum) {
    refuse_at(file, offset, printable(entry.name), ": the checksum of its ", bytes.size(),
        " bytes is not the stored one: the file is damaged");
  }
}

/// Reads the file whose header and bytes lie from where the last one ended up to `end`.
ZipEntry read_entry(std::span<const std::uint8_t> files, const DirectoryEntry& entry,
    std::uint64_t end, const std::string& file) {
  const auto until_end = files.first(end);
  const std::uint64_t offset = data_offset(until_end, entry, file);
  if (entry.stored > end - offset) {
    refuse_at(file, offset, printable(entry.name), ": its ", entry.stored,
        " bytes reach into what follows at ", end);
  }
  const auto bytes = until_end.subspan(offset, entry.stored);
  const std::uint64_t behind = offset + entry.stored;
  check_descriptor(until_end.subspan(behind), behind, entry, file);
  if (entry.method == 0) check_checksum(bytes, offset, entry, file);
  return {entry.name, bytes, offset, entry.method};
}

}  // namespace

std::vector<ZipEntry> read_zip(std::span<const std::uint8_t> archive, const std::string& file) {
  zip::Directory directory = zip::read_directory(archive, file);
  auto& found = directory.entries;
  std::sort(found.begin(), found.end(),
      [](const auto& left, const auto& right) { return left.header < right.header; });
  const std::uint64_t first = found.empty() ? directory.offset : found.front().header;
  if (first != 0)
    refuse_at(file, 0, "the first ", first, " bytes belong to no file of the archive");
  const auto files = archive.first(directory.offset);
  std::vector<ZipEntry> entries;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::uint64_t end = i + 1 < found.size() ? found[i + 1].header : directory.offset;
    if (end > directory.offset || end == found[i].header) {
      refuse_at(file, end, "two files of the zip archive lie at the same place");
    }
    entries.push_back(read_entry(files, found[i], end, file));
  }
  return entries;
}

}  // namespace lockstep
