#include "lockstep/formats/weights/zip_archive.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <unordered_set>
#include <zlib.h>

#include "lockstep/core/text.h"
#include "lockstep/formats/byte_fields.h"

namespace lockstep {
namespace {

// The records of a zip archive (PKWARE's APPNOTE.TXT 6.3): what each begins with, and its bytes
// without names and extra fields. All numbers are little-endian.

constexpr std::uint32_t kLocalSignature = 0x04034b50;
constexpr std::uint32_t kDescriptorSignature = 0x08074b50;
constexpr std::uint32_t kCentralSignature = 0x02014b50;
constexpr std::uint32_t kEndSignature = 0x06054b50;
constexpr std::uint32_t kEnd64Signature = 0x06064b50;
constexpr std::uint32_t kLocatorSignature = 0x07064b50;

constexpr std::size_t kLocalBytes = 30;
constexpr std::size_t kCentralBytes = 46;
constexpr std::size_t kEndBytes = 22;
constexpr std::size_t kEnd64Bytes = 56;
constexpr std::size_t kLocatorBytes = 20;

constexpr std::uint16_t kHasDescriptor = 1 << 3;
constexpr std::uint16_t kIsUtf8 = 1 << 11;
constexpr std::uint16_t kZip64Field = 0x0001;

std::uint32_t checksum_of(std::span<const std::uint8_t> bytes) {
  return static_cast<std::uint32_t>(crc32_z(0, bytes.data(), bytes.size()));
}

/// Stands in a narrow field for a number that stands in a wide one elsewhere.
constexpr std::uint32_t kElsewhere32 = 0xffffffff;
constexpr std::uint16_t kElsewhere16 = 0xffff;

/// The fields of a zip record, read one after another; what would lie behind the end is a
/// DataError.
class Fields {
 public:
  /// `offset` is where the record begins.
  Fields(std::span<const std::uint8_t> archive, std::uint64_t offset, const std::string& file)
      : archive_(archive), offset_(offset), file_(file) {}

  std::uint64_t number(std::size_t bytes) { return little_endian(take(bytes)); }
  std::uint16_t u16() { return static_cast<std::uint16_t>(number(2)); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(number(4)); }
  std::uint64_t u64() { return number(8); }

  std::string text(std::size_t bytes) { return std::string(text_of(take(bytes))); }

  std::span<const std::uint8_t> take(std::uint64_t bytes) {
    if (offset_ > archive_.size() || bytes > archive_.size() - offset_) {
      refuse_at(file_, offset_, "the file ends within a record of its zip archive");
    }
    const auto taken = archive_.subspan(offset_, bytes);
    offset_ += bytes;
    return taken;
  }

  std::uint64_t offset() const { return offset_; }

 private:
  std::span<const std::uint8_t> archive_;
  std::uint64_t offset_;
  const std::string& file_;
};

/// One file in the directory at an archive's end.
struct DirectoryEntry {
  std::string name;
  std::uint16_t flags = 0;
  std::uint16_t method = 0;  ///< of compression: 0 for none
  std::uint32_t checksum = 0;
  std::uint64_t stored = 0;  ///< bytes that lie in the archive
  std::uint64_t size = 0;    ///< bytes of the file
  std::uint64_t header = 0;  ///< offset of its own header
};

/// The directory of an archive.
struct Directory {
  std::vector<DirectoryEntry> entries;
  std::uint64_t offset = 0;  ///< where it begins, and the files end
};

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

/// Reads the directory at an archive's end. Names, ways of storing and sizes are checked; whether
/// the files are where it says is not.
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

/// Returns whether a size in a file's own header fits the directory; a descriptor or an extra field
/// may hold it instead.
bool fits(std::uint64_t here, std::uint64_t size, bool has_descriptor) {
  return here == size || here == kElsewhere32 || (has_descriptor && here == 0);
}

/// Reads a file's own header, compares it with the directory, and gives the place of its bytes.
std::uint64_t data_offset(
    std::span<const std::uint8_t> files, const DirectoryEntry& entry, const std::string& file) {
  Fields fields(files, entry.header, file);
  const bool has_descriptor = (entry.flags & kHasDescriptor) != 0;
  bool is_same = fields.u32() == kLocalSignature;
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
  if ((entry.flags & kHasDescriptor) != 0) {
    const std::size_t signature = between.size() % 8 == 0 ? 4 : 0;
    const std::size_t width = between.size() > 16 ? 8 : 4;
    is_right = between.size() == signature + 4 + 2 * width;
    if (is_right) {
      Fields fields(between, 0, file);
      is_right &= signature == 0 || fields.u32() == kDescriptorSignature;
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

/// Reads the file whose header and bytes lie from where the last one ended up to `end`.
ZipEntry stored_entry(std::span<const std::uint8_t> files, const DirectoryEntry& entry,
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
  if (entry.method == 0 && checksum_of(bytes) != entry.checksum) {
    refuse_at(file, offset, printable(entry.name), ": the checksum of its ", bytes.size(),
        " bytes is not the stored one: the file is damaged");
  }
  return {entry.name, bytes, offset, entry.method};
}

constexpr std::uint64_t kFileAlignment = 64;
constexpr int kZipVersion = 45;       // 64-bit sizes
constexpr int kFillerField = 0x4246;  // "FB", the extra field that PyTorch fills up with

std::uint32_t narrow32(std::uint64_t number) {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(number, kElsewhere32));
}

/// Returns the extra field with those of the numbers that have no place in 32 bits.
std::string wide_field(std::initializer_list<std::uint64_t> numbers) {
  std::string wide;
  for (const std::uint64_t number : numbers) {
    if (number >= kElsewhere32) append_little_endian(wide, number, 8);
  }
  if (wide.empty()) return wide;
  std::string field;
  append_little_endian(field, kZip64Field, 2);
  append_little_endian(field, wide.size(), 2);
  return field + wide;
}

/// Returns an extra field that makes the file's bytes begin at a multiple of kFileAlignment, if
/// they would begin at `offset` without it.
std::string filler(std::uint64_t offset) {
  const std::uint64_t size = (2 * kFileAlignment - (offset + 4) % kFileAlignment) % kFileAlignment;
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
  append_little_endian(fields, kZipVersion, 2);
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

std::vector<ZipEntry> read_zip(std::span<const std::uint8_t> archive, const std::string& file) {
  Directory directory = read_directory(archive, file);
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
    entries.push_back(stored_entry(files, found[i], end, file));
  }
  return entries;
}

void ZipWriter::add(const std::string& name, std::span<const std::uint8_t> bytes) {
  const std::uint32_t checksum = checksum_of(bytes);
  const std::uint64_t size = bytes.size();
  // Both sizes are wide if one is.
  std::string extra = wide_field({size, size});
  extra += filler(offset_ + kLocalBytes + name.size() + extra.size());

  const std::string wide = wide_field({size, size, offset_});
  directory_ += signed_with(kCentralSignature);
  append_little_endian(directory_, kZipVersion, 2);
  directory_ += shared_fields(checksum, size, name.size(), wide.size());
  append_little_endian(directory_, 0, 2 + 2 + 2);  // no comment, disk 0, no internal attributes
  append_little_endian(directory_, 0, 4);          // no external attributes
  append_little_endian(directory_, narrow32(offset_), 4);
  directory_ += name + wide;
  ++entries_;

  write(signed_with(kLocalSignature) + shared_fields(checksum, size, name.size(), extra.size()) +
        name + extra);
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
  std::string records = signed_with(kEnd64Signature);
  append_little_endian(records, kEnd64Bytes - 12, 8);
  append_little_endian(records, kZipVersion, 2);
  append_little_endian(records, kZipVersion, 2);
  append_little_endian(records, 0, 4 + 4);  // disk 0, directory on disk 0
  for (const std::uint64_t number : {entries_, entries_, end - start, start}) {
    append_little_endian(records, number, 8);
  }
  records += signed_with(kLocatorSignature);
  append_little_endian(records, 0, 4);
  append_little_endian(records, end, 8);
  append_little_endian(records, 1, 4);  // one disk
  records += signed_with(kEndSignature);
  append_little_endian(records, 0, 2 + 2);
  for (int i = 0; i < 2; ++i) {
    append_little_endian(records, std::min<std::uint64_t>(entries_, kElsewhere16), 2);
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
