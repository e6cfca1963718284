#include "lockstep/formats/fetch/archive_reader.h"

#include <array>
#include <new>

#include <archive.h>
#include <archive_entry.h>
#include <locale.h>
#include <sys/stat.h>

#include "lockstep/core/error.h"
#include "lockstep/formats/fetch/archive_path.h"
#include "lockstep/formats/fetch/tar_stream.h"
#include "lockstep/formats/input_file.h"

namespace lockstep {
namespace {

constexpr std::size_t kZipBlock = 64 * 1024;

struct FreeArchive {
  void operator()(archive* handle) const noexcept { archive_read_free(handle); }
};

bool starts_as_zip(const std::filesystem::path& path) {
  InputFile file(path);
  std::array<std::uint8_t, 4> start{};
  return file.read(start) == start.size() && start[0] == 'P' && start[1] == 'K' &&
         (start[2] == 3 || start[2] == 5);
}

EntryKind kind_of(archive_entry* entry) {
  if (archive_entry_hardlink(entry) != nullptr) return EntryKind::kHardLink;
  switch (archive_entry_filetype(entry)) {
    case AE_IFREG:
      return EntryKind::kFile;
    case AE_IFDIR:
      return EntryKind::kDirectory;
    case AE_IFLNK:
      return EntryKind::kSymbolicLink;
    case AE_IFBLK:
    case AE_IFCHR:
      return EntryKind::kDevice;
    case AE_IFIFO:
      return EntryKind::kFifo;
    default:
      return EntryKind::kOther;
  }
}

std::string name_of(archive_entry* entry) {
  const char* name = archive_entry_pathname(entry);
  return name == nullptr ? "" : name;
}

/// Lets libarchive write names as UTF-8 in this thread while it lives, whatever the user's locale.
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

}  // namespace

/// Is libarchive's state; of tar it sees the blocks only, of zip the file itself.
struct ArchiveReader::Stream {
  Stream() : handle(archive_read_new()) {
    if (!handle) throw std::bad_alloc();
  }

  static la_ssize_t give(archive* handle, void* user, const void** bytes) noexcept;

  std::unique_ptr<archive, FreeArchive> handle;
  std::optional<TarStream> tar;
  std::exception_ptr failure;  // of the blocks: exceptions must not pass through C
};

la_ssize_t ArchiveReader::Stream::give(archive* handle, void* user, const void** bytes) noexcept {
  auto& stream = *static_cast<Stream*>(user);
  try {
    const auto block = stream.tar->next();
    *bytes = block.data();
    return static_cast<la_ssize_t>(block.size());
  } catch (...) {
    stream.failure = std::current_exception();
    archive_set_error(handle, EIO, "the source failed");
    return -1;
  }
}

ArchiveReader::ArchiveReader(const std::filesystem::path& path, std::uint64_t ratio)
    : name_(path.string()), ratio_(ratio), stream_(std::make_unique<Stream>()) {
  check(ratio > 0, "archive: the ratio must be positive");
  archive* handle = stream_->handle.get();
  int status = ARCHIVE_OK;
  if (starts_as_zip(path)) {
    zip_bytes_ = std::filesystem::file_size(path);
    archive_read_support_format_zip_seekable(handle);
    status = archive_read_open_filename(handle, path.c_str(), kZipBlock);
  } else {
    stream_->tar.emplace(path, ratio);
    archive_read_support_format_tar(handle);
    status = archive_read_open(handle, stream_.get(), nullptr, Stream::give, nullptr);
  }
  if (status != ARCHIVE_OK) fail();
}

ArchiveReader::~ArchiveReader() = default;

std::optional<ArchiveEntry> ArchiveReader::next() {
  const Utf8Names utf8;
  archive* handle = stream_->handle.get();
  archive_entry* entry = nullptr;
  const int status = archive_read_next_header(handle, &entry);
  if (status == ARCHIVE_EOF) {
    if (stream_->tar) {
      stream_->tar->finish(static_cast<std::uint64_t>(archive_filter_bytes(handle, 0)));
    }
    return std::nullopt;
  }
  if (status != ARCHIVE_OK) fail();
  offset_ = 0;
  return ArchiveEntry{
      .name = name_of(entry),
      .kind = kind_of(entry),
      .executable = (archive_entry_perm(entry) & S_IXUSR) != 0,
      .set_id = (archive_entry_perm(entry) & (S_ISUID | S_ISGID)) != 0,
      .sparse = archive_entry_sparse_count(entry) > 0};
}

std::span<const std::uint8_t> ArchiveReader::read() {
  const void* bytes = nullptr;
  std::size_t size = 0;
  la_int64_t offset = 0;
  const int status = archive_read_data_block(stream_->handle.get(), &bytes, &size, &offset);
  if (status == ARCHIVE_EOF) return {};
  if (status != ARCHIVE_OK) fail();
  if (static_cast<std::uint64_t>(offset) != offset_) {
    throw DataError(concat(name_, ": a file in the archive has a hole at ", offset_));
  }
  offset_ += size;
  given_ += size;
  if (!stream_->tar && !within_ratio(given_, zip_bytes_, ratio_)) {
    throw DataError(concat(name_, ": the archive grows to more than ", ratio_, " times its size"));
  }
  if (size == 0) return read();
  return {static_cast<const std::uint8_t*>(bytes), size};
}

void ArchiveReader::fail() {
  if (stream_->failure) std::rethrow_exception(stream_->failure);
  const char* reason = archive_error_string(stream_->handle.get());
  throw DataError(concat(
      name_, ": no archive that can be read: ",
      reason == nullptr ? "unknown reason" : shown_name(reason)));
}

}  // namespace lockstep
