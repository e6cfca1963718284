#include <array>
#include <unordered_set>

#include "lockstep/core/text.h"
#include "lockstep/formats/weights/zip_records.h"

namespace lockstep::zip {
namespace {

struct Extent {
  std::uint64_t entries = 0;
  std::uint64_t size = 0;
  std::uint64_t offset = 0;
};

bool starts_record(
    std::span<const std::uint8_t> archive, std::uint64_t offset, std::uint32_t signature) {
  return offset + 4 <= archive.size() && little_endian(archive.subspan(offset, 4)) == signature;
}

Extent read_end(std::span<const std::uint8_t> archive, std::uint64_t at, const std::string& file) {
  Fields fields(archive, at + 4, file);
  const bool is_one_disk = fields.u16() == 0 && fields.u16() == 0;
  const std::uint16_t entries_here = fields.u16();
  const Extent extent{.entries = fields.u16(), .size = fields.u32(), .offset = fields.u32()};
  if (!is_one_disk || entries_here != extent.entries) {
    refuse_at(file, at, "the zip archive is split over several files");
  }
  if (fields.u16() != 0) refuse_at(file, at, "the zip archive ends with a comment");
  return extent;
}

/// Reads the record with 64-bit numbers; the narrow ones must say the same or point here.
Extent read_end64(std::span<const std::uint8_t> archive, std::uint64_t locator,
    const Extent& narrow, const std::string& file) {
  Fields located(archive, locator + 4, file);
  const bool is_first_disk = located.u32() == 0;
  const std::uint64_t at = located.u64();
  if (!is_first_disk || located.u32() != 1 || at != locator - kEnd64Bytes ||
      !starts_record(archive, at, kEnd64Signature)) {
    refuse_at(file, locator, "the zip archive's 64-bit end is not where its locator says");
  }
  Fields fields(archive, at + 4, file);
  const bool is_plain = fields.u64() == kEnd64Bytes - 12;
  fields.take(4);  // versions of the writer and needed to read
  const bool is_one_disk = fields.u32() == 0 && fields.u32() == 0;
  const std::uint64_t entries_here = fields.u64();
  const Extent wide{.entries = fields.u64(), .size = fields.u64(), .offset = fields.u64()};
  const auto agrees = [](std::uint64_t in_narrow, std::uint64_t in_wide, std::uint64_t elsewhere) {
    return in_narrow == in_wide || in_narrow == elsewhere;
  };
  if (!is_plain || !is_one_disk || entries_here != wide.entries ||
      !agrees(narrow.entries, wide.entries, kElsewhere16) ||
      !agrees(narrow.size, wide.size, kElsewhere32) ||
      !agrees(narrow.offset, wide.offset, kElsewhere32)) {
    refuse_at(file, at, "the zip archive's two ends contradict each other");
  }
  return wide;
}

/// Finds where the directory lies; it must reach up to the records of the end.
Extent find_directory(std::span<const std::uint8_t> archive, const std::string& file) {
  if (archive.size() < kEndBytes ||
      !starts_record(archive, archive.size() - kEndBytes, kEndSignature)) {
    refuse_at(
        file, archive.size(), "no zip archive's end: the file was cut or continues behind it");
  }
  std::uint64_t end = archive.size() - kEndBytes;
  Extent extent = read_end(archive, end, file);
  if (end >= kLocatorBytes + kEnd64Bytes &&
      starts_record(archive, end - kLocatorBytes, kLocatorSignature)) {
    extent = read_end64(archive, end - kLocatorBytes, extent, file);
    end -= kLocatorBytes + kEnd64Bytes;
  }
  if (extent.offset > end || extent.size != end - extent.offset) {
    refuse_at(file, end, "the zip archive's directory does not lie before its end");
  }
  if (extent.entries > extent.size / kCentralBytes) {
    refuse_at(
        file, end, "a directory of ", extent.size, " bytes has no ", extent.entries, " files");
  }
  return extent;
}

void check_name(const std::string& name, std::uint64_t at, const std::string& file) {
  const std::string around = '/' + name + '/';
  const bool leaves = name.starts_with('/') || around.find("/../") != std::string::npos ||
                      name.find('\\') != std::string::npos;
  if (name.empty() || leaves) {
    refuse_at(file, at, "the zip archive names a file ", printable(name), ", which could leave it");
  }
  if (!is_utf8(name) || name.find('\0') != std::string::npos) {
    refuse_at(file, at, "the zip archive's name ", printable(name), " is not UTF-8");
  }
}

/// Takes from the extra field the numbers that had no place in 32 bits.
void widen(Fields extra, std::uint64_t end, const std::array<std::uint64_t*, 3>& numbers) {
  while (end - extra.offset() >= 4) {
    const std::uint16_t kind = extra.u16();
    std::uint16_t bytes = extra.u16();
    Fields inner = extra;
    extra.take(bytes);
    if (kind != kZip64Field) continue;
    for (std::uint64_t* number : numbers) {
      if (*number != kElsewhere32 || bytes < 8) continue;
      *number = inner.u64();
      bytes = static_cast<std::uint16_t>(bytes - 8);
    }
    return;
  }
}

DirectoryEntry read_entry(
    Fields& fields, std::span<const std::uint8_t> directory, const std::string& file) {
  const std::uint64_t at = fields.offset();
  if (fields.u32() != kCentralSignature) refuse_at(file, at, "no entry of the zip directory");
  DirectoryEntry entry;
  fields.take(4);  // versions of the writer and needed to read
  entry.flags = fields.u16();
  entry.method = fields.u16();
  fields.take(4);  // time and date
  entry.checksum = fields.u32();
  entry.stored = fields.u32();
  entry.size = fields.u32();
  const std::uint16_t name_bytes = fields.u16();
  const std::uint16_t extra_bytes = fields.u16();
  const std::uint16_t comment_bytes = fields.u16();
  const std::uint16_t disk = fields.u16();
  fields.take(6);  // attributes
  entry.header = fields.u32();
  entry.name = fields.text(name_bytes);
  check_name(entry.name, at, file);
  const std::uint64_t extra_offset = fields.offset();
  fields.take(extra_bytes);
  widen(Fields(directory.first(fields.offset()), extra_offset, file), fields.offset(),
      {&entry.size, &entry.stored, &entry.header});
  fields.take(comment_bytes);
  const std::string name = printable(entry.name);
  if ((entry.flags & ~(kHasDescriptor | kIsUtf8)) != 0 || disk != 0) {
    refuse_at(file, at, name, " is encrypted, split or of a kind that is not read");
  }
  if (entry.method == 0 && entry.stored != entry.size) {
    refuse_at(
        file, at, name, " has ", entry.size, " bytes, of which ", entry.stored, " are stored");
  }
  return entry;
}

}  // namespace

Directory read_directory(std::span<const std::uint8_t> archive, const std::string& file) {
  const Extent extent = find_directory(archive, file);
  const auto until_end = archive.first(extent.offset + extent.size);
  Fields fields(until_end, extent.offset, file);
  Directory directory{.entries = {}, .offset = extent.offset};
  std::unordered_set<std::string> names;
  for (std::uint64_t i = 0; i < extent.entries; ++i) {
    const std::uint64_t at = fields.offset();
    directory.entries.push_back(read_entry(fields, until_end, file));
    const std::string& name = directory.entries.back().name;
    if (!names.insert(name).second) refuse_at(file, at, printable(name), " is there twice");
  }
  if (fields.offset() != until_end.size()) {
    refuse_at(
        file, fields.offset(), "the zip directory continues after its ", extent.entries, " files");
  }
  return directory;
}

}  // namespace lockstep::zip
