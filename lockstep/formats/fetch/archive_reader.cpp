#include "lockstep/formats/fetch/archive_reader.h"

#include <algorithm>
#include <archive.h>
#include <archive_entry.h>
#include <array>
#include <exception>
#include <locale.h>
#include <new>
#include <sys/stat.h>
#include <vector>

#include "lockstep/core/error.h"
#include "lockstep/formats/byte_fields.h"
#include "lockstep/formats/fetch/archive_path.h"
#include "lockstep/formats/gzip.h"
#include "lockstep/formats/input_file.h"

namespace lockstep {
namespace {

constexpr std::size_t kZipBlock = 64 * 1024;
constexpr std::size_t kTarPiece = 64 * 1024;
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
  TarStream(const std::filesystem::path& path, std::uint64_t ratio)
      : file_(path), counted_(file_), source_(counted_), ratio_(ratio), block_(kTarPiece) {}

  /// Returns the next block, valid until the next call; none at the end.
  std::span<const std::uint8_t> next();

  /// Reads on to the end, so that gzip's checksum is looked at, and requires that after the first
  /// `consumed` bytes of all blocks only zeros come, and that the end is marked by two blocks of
  /// zeros (POSIX, ustar).
  void finish(std::uint64_t consumed);

 private:
  /// A source that counts the bytes read from it.
  class Counted final : public ByteSource {
   public:
    explicit Counted(ByteSource& source) : source_(source) {}
    std::size_t read(std::span<std::uint8_t> out) override {
      const std::size_t count = source_.read(out);
      bytes_ += count;
      return count;
    }
    const std::string& name() const override { return source_.name(); }
    std::uint64_t bytes() const { return bytes_; }

   private:
    ByteSource& source_;
    std::uint64_t bytes_ = 0;
  };

  InputFile file_;
  Counted counted_;
  GunzipSource source_;
  std::uint64_t ratio_;
  std::vector<std::uint8_t> block_;
  std::uint64_t given_ = 0;  // bytes of all blocks so far
  std::uint64_t zeros_ = 0;  // at the end of them
};

std::span<const std::uint8_t> TarStream::next() {
  const auto block = std::span<const std::uint8_t>(block_).first(source_.read(block_));
  given_ += block.size();
  const std::size_t zeros = zeros_at_end(block);
  zeros_ = zeros == block.size() ? zeros_ + zeros : zeros;
  if (!within_ratio(given_, counted_.bytes(), ratio_)) {
    throw DataError(concat(file_.name(), ": compressed offset ", counted_.bytes(),
        ": the archive grows to more than ", ratio_, " times its size"));
  }
  return block;
}

void TarStream::finish(std::uint64_t consumed) {
  while (!next().empty()) {
  }
  if (given_ - consumed > zeros_) {
    throw DataError(
        concat(file_.name(), ": offset ", consumed, ": other bytes come after the archive's end"));
  }
  if (zeros_ < 2 * kTarBlock || given_ % kTarBlock != 0) {
    throw DataError(concat(
        file_.name(), ": offset ", given_, ": the archive ends too early, without its end mark"));
  }
}

struct FreeArchive {
  void operator()(archive* handle) const noexcept { archive_read_free(handle); }
};

bool starts_as_zip(const std::filesystem::path& path) {
  InputFile file(path);
  std::array<std::uint8_t, 4> start{};
  return file.read(start) == start.size() && start[0] == 'P' && start[1] == 'K' &&
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

std::string name_of(archive_entry* entry) {
  const char* name = archive_entry_pathname(entry);
  return name == nullptr ? "" : name;
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

}  // namespace

/// libarchive's state; of tar it sees the blocks only, of zip the file itself.
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
  return ArchiveEntry{.name = name_of(entry),
      .is_folder = archive_entry_filetype(entry) == AE_IFDIR,
      .executable = (archive_entry_perm(entry) & S_IXUSR) != 0,
      .refusal = refusal_of(entry)};
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
  throw DataError(concat(name_, ": no archive that can be read: ",
      reason == nullptr ? "unknown reason" : shown_name(reason)));
}

}  // namespace lockstep
