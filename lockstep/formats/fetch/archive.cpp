#include "lockstep/formats/fetch/archive.h"

#include <algorithm>
#include <archive.h>
#include <archive_entry.h>
#include <array>
#include <exception>
#include <fstream>
#include <locale.h>
#include <memory>
#include <new>
#include <span>
#include <sys/stat.h>
#include <system_error>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/byte_fields.h"
#include "lockstep/formats/checksum.h"
#include "lockstep/formats/input_file.h"
#include "lockstep/formats/output_file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestPart = 255;  // what Linux's file systems take
constexpr std::size_t kMostShown = 200;

bool is_control(char letter) { return static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f; }

void require(bool condition, const std::string& reason) {
  if (!condition) throw DataError(reason);
}

/// Returns the path below a root that an archive's entry names, without `.` and doubled slashes;
/// empty for the root itself.
///
/// A name that is absolute, climbs by `..`, is longer or deeper than the limits, or holds a control
/// character is a DataError whose text is the reason alone.
fs::path path_in_archive(const std::string& name, const ArchiveLimits& limits) {
  require(!name.empty(), "it has no name");
  require(name.size() <= limits.path_bytes,
      concat("its name is longer than ", limits.path_bytes, " bytes"));
  require(name.front() != '/', "its name is an absolute path");
  require(std::none_of(name.begin(), name.end(), is_control), "its name holds a control character");
  fs::path path;
  std::size_t depth = 0;
  for (const std::string& part : split(name, '/')) {
    if (part.empty() || part == ".") continue;
    require(part != "..", "its name leaves the folder by ..");
    require(part.size() <= kLongestPart,
        concat("a part of its name is longer than ", kLongestPart, " bytes"));
    require(++depth <= limits.depth, concat("it lies more than ", limits.depth, " folders deep"));
    path /= part;
  }
  return path;
}

/// An archive's description of one of its entries.
struct ArchiveEntry {
  std::string name;
  bool is_folder = false;         ///< otherwise a file
  bool executable = false;        ///< by its owner
  const char* refusal = nullptr;  ///< why it must not be unpacked, such as `it is a device`
};

constexpr std::size_t kPiece = 64 * 1024;
constexpr std::uint64_t kTarBlock = 512;
constexpr std::uint64_t kFree = std::uint64_t{1} << 20;

std::size_t zeros_at_end(std::span<const std::uint8_t> bytes) {
  const auto other =
      std::find_if(bytes.rbegin(), bytes.rend(), [](std::uint8_t byte) { return byte != 0; });
  return static_cast<std::size_t>(other - bytes.rbegin());
}

/// Lets what grows out of an archive be at most 1 MiB, or `ratio` times what was read.
bool within_ratio(std::uint64_t grown, std::uint64_t read, std::uint64_t ratio) {
  return grown <= kFree || grown / ratio <= read;
}

/// The blocks of a tar file, unpacked if it is gzip; watches how they grow and end.
class TarStream {
 public:
  TarStream(const fs::path& path, std::uint64_t ratio)
      : file_(path), source_(file_), ratio_(ratio), block_(kPiece) {}

  /// Returns the next block, valid until the next call; none at the end.
  std::span<const std::uint8_t> next() {
    const auto block = std::span<const std::uint8_t>(block_).first(source_.read(block_));
    given_ += block.size();
    const std::size_t zeros = zeros_at_end(block);
    zeros_ = zeros == block.size() ? zeros_ + zeros : zeros;
    if (!within_ratio(given_, source_.bytes_read(), ratio_)) {
      throw DataError(concat(file_.name(), ": compressed offset ", source_.bytes_read(),
          ": the archive grows to more than ", ratio_, " times its size"));
    }
    return block;
  }

  /// Reads on to the end, so that gzip's checksum is looked at, and requires that after the first
  /// `consumed` bytes of all blocks only zeros come, and that the end is marked by two blocks of
  /// zeros (POSIX, ustar).
  void finish(std::uint64_t consumed) {
    while (!next().empty()) {
    }
    if (given_ - consumed > zeros_) {
      refuse_at(file_.name(), consumed, "other bytes come after the archive's end");
    }
    if (zeros_ < 2 * kTarBlock || given_ % kTarBlock != 0) {
      refuse_at(file_.name(), given_, "the archive ends too early, without its end mark");
    }
  }

 private:
  InputFile file_;
  GunzipSource source_;
  std::uint64_t ratio_;
  std::vector<std::uint8_t> block_;
  std::uint64_t given_ = 0;  // bytes of all blocks so far
  std::uint64_t zeros_ = 0;  // at the end of them
};

struct FreeArchive {
  void operator()(archive* handle) const noexcept { archive_read_free(handle); }
};

bool starts_as_zip(const fs::path& path) {
  InputFile file(path);
  std::array<std::uint8_t, 4> start{};
  return file.read(start) == start.size() && starts_with(start, "PK") &&
         (start[2] == 3 || start[2] == 5);
}

/// Returns why an entry is neither a plain file nor a folder, or null. Holes need no bytes in the
/// archive, so a sparse file could be of any size.
const char* refusal_of(archive_entry* entry) {
  if (archive_entry_hardlink(entry) != nullptr) return "it is a hard link";
  switch (archive_entry_filetype(entry)) {
    case AE_IFREG:
      if ((archive_entry_perm(entry) & (S_ISUID | S_ISGID)) != 0) {
        return "it is a setuid or setgid file";
      }
      return archive_entry_sparse_count(entry) > 0 ? "it is a sparse file" : nullptr;
    case AE_IFDIR:
      return nullptr;
    case AE_IFLNK:
      return "it is a symbolic link";
    case AE_IFBLK:
    case AE_IFCHR:
      return "it is a device";
    case AE_IFIFO:
      return "it is a FIFO";
    default:
      return "it is neither file nor folder";
  }
}

/// A scope in which libarchive writes names as UTF-8 in this thread, whatever the user's locale.
class Utf8Names {
 public:
  Utf8Names() : ours_(::newlocale(LC_CTYPE_MASK, "C.UTF-8", locale_t{})) {
    if (ours_ != locale_t{}) before_ = ::uselocale(ours_);
  }
  Utf8Names(const Utf8Names&) = delete;
  Utf8Names& operator=(const Utf8Names&) = delete;
  ~Utf8Names() {
    if (ours_ == locale_t{}) return;
    ::uselocale(before_);
    ::freelocale(ours_);
  }

 private:
  locale_t ours_;
  locale_t before_{};
};

/// A tar file, plain or gzip, or a zip file; its first bytes decide which. Of tar libarchive sees
/// the blocks only, of zip the file itself.
///
/// Wrong checksums, a cut file and bytes after the end are a DataError. So is a stream that grows
/// to more than `ratio` times the bytes read for it (the first MiB is free): memory and time stay
/// in proportion to the file.
class ArchiveReader {
 public:
  ArchiveReader(const fs::path& path, std::uint64_t ratio)
      : name_(path.string()), ratio_(ratio), handle_(archive_read_new()) {
    check(ratio > 0, "archive: the ratio must be positive");
    if (!handle_) throw std::bad_alloc();
    int status = ARCHIVE_OK;
    if (starts_as_zip(path)) {
      zip_bytes_ = fs::file_size(path);
      archive_read_support_format_zip_seekable(handle_.get());
      status = archive_read_open_filename(handle_.get(), path.c_str(), kPiece);
    } else {
      tar_.emplace(path, ratio);
      archive_read_support_format_tar(handle_.get());
      status = archive_read_open(handle_.get(), this, nullptr, give, nullptr);
    }
    if (status != ARCHIVE_OK) fail();
  }
  ArchiveReader(const ArchiveReader&) = delete;
  ArchiveReader& operator=(const ArchiveReader&) = delete;

  /// Goes to the next entry; none at the end.
  std::optional<ArchiveEntry> next() {
    const Utf8Names utf8;
    archive_entry* entry = nullptr;
    const int status = archive_read_next_header(handle_.get(), &entry);
    if (status == ARCHIVE_EOF) {
      if (tar_) tar_->finish(static_cast<std::uint64_t>(archive_filter_bytes(handle_.get(), 0)));
      return std::nullopt;
    }
    if (status != ARCHIVE_OK) fail();
    offset_ = 0;
    const char* name = archive_entry_pathname(entry);
    return ArchiveEntry{.name = name == nullptr ? "" : name,
        .is_folder = archive_entry_filetype(entry) == AE_IFDIR,
        .executable = (archive_entry_perm(entry) & S_IXUSR) != 0,
        .refusal = refusal_of(entry)};
  }

  /// Returns the next bytes of the entry, valid until the next call; none at its end.
  std::span<const std::uint8_t> read() {
    const void* bytes = nullptr;
    std::size_t size = 0;
    la_int64_t offset = 0;
    const int status = archive_read_data_block(handle_.get(), &bytes, &size, &offset);
    if (status == ARCHIVE_EOF) return {};
    if (status != ARCHIVE_OK) fail();
    if (static_cast<std::uint64_t>(offset) != offset_) {
      throw DataError(concat(name_, ": a file in the archive has a hole at ", offset_));
    }
    offset_ += size;
    given_ += size;
    if (!tar_ && !within_ratio(given_, zip_bytes_, ratio_)) {
      throw DataError(
          concat(name_, ": the archive grows to more than ", ratio_, " times its size"));
    }
    if (size == 0) return read();
    return {static_cast<const std::uint8_t*>(bytes), size};
  }

 private:
  static la_ssize_t give(archive* handle, void* user, const void** bytes) noexcept {
    auto& reader = *static_cast<ArchiveReader*>(user);
    try {
      const auto block = reader.tar_->next();
      *bytes = block.data();
      return static_cast<la_ssize_t>(block.size());
    } catch (...) {
      reader.failure_ = std::current_exception();
      archive_set_error(handle, EIO, "the source failed");
      return -1;
    }
  }

  [[noreturn]] void fail() {
    if (failure_) std::rethrow_exception(failure_);
    const char* reason = archive_error_string(handle_.get());
    throw DataError(concat(name_, ": no archive that can be read: ",
        reason == nullptr ? "unknown reason" : shown_name(reason)));
  }

  std::string name_;
  std::uint64_t ratio_;
  std::uint64_t zip_bytes_ = 0;  // 0 for tar
  std::uint64_t given_ = 0;
  std::uint64_t offset_ = 0;
  std::optional<TarStream> tar_;
  std::exception_ptr failure_;  // of the blocks: exceptions must not pass through C
  std::unique_ptr<archive, FreeArchive> handle_;
};

/// The unpacking of one archive.
class Extraction {
 public:
  Extraction(
      const fs::path& archive, fs::path folder, const ArchiveLimits& limits, const std::string& top)
      : reader_(archive, limits.ratio),
        name_(archive.string()),
        folder_(std::move(folder)),
        limits_(limits),
        top_(top) {}

  Unpacked run() {
    while (auto entry = reader_.next()) {
      entry_ = std::move(*entry);
      ++entries_;
      if (entries_ > limits_.entries) refuse(concat("there are more than ", limits_.entries));
      if (entry_.refusal != nullptr) refuse(entry_.refusal);
      const fs::path path = safe_path();
      if (entry_.is_folder) {
        make_folder(path);
      } else {
        write_file(path);
      }
    }
    return unpacked_;
  }

 private:
  fs::path safe_path() const {
    try {
      return below_top(path_in_archive(entry_.name, limits_));
    } catch (const DataError& error) {
      refuse(error.what());
    }
  }

  fs::path below_top(const fs::path& path) const {
    if (top_.empty()) return path;
    if (path.empty() || *path.begin() != top_) {
      throw DataError(concat("it lies outside of the folder ", top_));
    }
    return path.lexically_relative(top_) == "." ? fs::path() : path.lexically_relative(top_);
  }

  void make_folder(const fs::path& path) {
    std::error_code error;
    unpacked_.folders += fs::create_directories(folder_ / path, error) ? 1 : 0;
    // create_directories() is content with a file of that name.
    if (error == std::errc::not_a_directory || (!error && !fs::is_directory(folder_ / path))) {
      refuse("a file has the name of its folder");
    }
    if (error) throw std::system_error(error, concat("cannot make the folder ", folder_ / path));
  }

  void write_file(const fs::path& path) {
    if (path.empty()) refuse("a file has the name of its folder");
    make_folder(path.parent_path());
    if (fs::exists(fs::symlink_status(folder_ / path))) refuse("duplicate entry");
    OutputFile file(folder_ / path);
    for (auto bytes = reader_.read(); !bytes.empty(); bytes = reader_.read()) {
      unpacked_.bytes += bytes.size();
      if (unpacked_.bytes > limits_.bytes) {
        refuse(concat("the files hold more than ", limits_.bytes, " bytes"));
      }
      file.write(bytes);
    }
    file.close();
    if (entry_.executable) fs::permissions(folder_ / path, fs::perms(0755));
    ++unpacked_.files;
  }

  [[noreturn]] void refuse(const std::string& reason) const {
    throw DataError(
        concat(name_, ": entry ", entries_, " (", shown_name(entry_.name), "): ", reason));
  }

  ArchiveReader reader_;
  std::string name_;
  fs::path folder_;
  const ArchiveLimits& limits_;
  const std::string& top_;
  ArchiveEntry entry_;
  std::uint64_t entries_ = 0;
  Unpacked unpacked_;
};

std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_directory()) files.push_back(entry.path().lexically_relative(folder));
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// Looks at one line: the hash, two spaces, the name.
std::optional<std::string> line_fault(const fs::path& folder, const std::string& line) {
  const std::string expected = line.substr(0, kSha256Letters);
  const std::string between = line.substr(expected.size(), 2);
  if (!is_sha256(expected) || between != "  ") return "its list of checksums is damaged";
  const std::string name = line.substr(kSha256Letters + 2);
  try {
    const fs::path path = folder / path_in_archive(name, {});
    const std::string sha256 = sha256_of_file(path);
    if (sha256 == expected) return std::nullopt;
    return concat(name, " has the SHA-256 ", sha256, " and must have ", expected);
  } catch (const DataError& error) {
    return error.what();
  }
}

}  // namespace

std::string shown_name(const std::string& name) {
  const std::string front = printable_path(name.substr(0, kMostShown));
  return name.size() > kMostShown ? front + "..." : front;
}

Unpacked extract_archive(const fs::path& archive, const fs::path& folder,
    const ArchiveLimits& limits, const std::string& top) {
  check(fs::is_directory(folder) && fs::is_empty(folder),
      "archive: the folder to unpack into must be empty: ", folder.string());
  return Extraction(archive, folder, limits, top).run();
}

void write_checksum_list(const fs::path& folder) {
  std::string text;
  for (const auto& file : files_below(folder)) {
    text += sha256_of_file(folder / file) + "  " + file.string() + "\n";
  }
  OutputFile list(folder / kChecksumList);
  list.write(text);
  list.close();
}

std::optional<std::string> checksum_list_fault(const fs::path& folder) {
  std::ifstream list(folder / kChecksumList);
  if (!list) return concat("it has no list of checksums, ", kChecksumList);
  std::size_t lines = 0;
  for (std::string line; std::getline(list, line); ++lines) {
    if (auto fault = line_fault(folder, line)) return fault;
  }
  if (lines == 0) return "its list of checksums is empty";
  return std::nullopt;
}

}  // namespace lockstep
