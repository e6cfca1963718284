#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <sys/stat.h>
#include <type_traits>
#include <vector>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/formats/byte_stream.h"

struct z_stream_s;

namespace lockstep {

/// A regular file that is read from its start.
class InputFile final : public ByteSource {
 public:
  /// A path that is missing, a loop of links, a directory, a FIFO or a device is a DataError and
  /// never blocks; what the operating system refuses for another reason (permission, too many
  /// files) is a std::system_error.
  explicit InputFile(const std::filesystem::path& path);

  /// Takes a file that is open already; `name` stands in messages.
  InputFile(FileDescriptor file, std::string name)
      : name_(std::move(name)), file_(std::move(file)) {}

  std::size_t read(std::span<std::uint8_t> out) override;
  const std::string& name() const override { return name_; }
  int descriptor() const { return file_.get(); }

 private:
  std::string name_;
  FileDescriptor file_;
};

/// The bytes of another source: inflated if they start as gzip does (1f 8b), otherwise as they are.
///
/// Several gzip members are read as one. Only what is asked for is inflated, so the reader sets the
/// bound. A stream that is cut, damaged, or followed by other bytes is a DataError that names the
/// offset in the compressed bytes.
class GunzipSource final : public ByteSource {
 public:
  /// The compressed source must outlive this one.
  explicit GunzipSource(ByteSource& compressed);

  std::size_t read(std::span<std::uint8_t> out) override;
  const std::string& name() const override { return compressed_.name(); }

  /// Counts the bytes taken from the other source.
  std::uint64_t bytes_read() const { return bytes_taken_; }

 private:
  struct EndInflate {
    void operator()(z_stream_s* stream) const noexcept;
  };

  std::size_t copy_some(std::span<std::uint8_t> out);
  std::size_t inflate_some(std::span<std::uint8_t> out);
  bool start_next_member();
  void refill();
  [[noreturn]] void fail(const std::string& reason) const;

  ByteSource& compressed_;
  std::vector<std::uint8_t> buffer_;
  std::uint64_t bytes_taken_ = 0;
  bool is_gzip_ = false;
  bool inside_member_ = false;
  std::unique_ptr<z_stream_s, EndInflate> stream_;
};

/// A mapped range whose lost pages are detected: see MappedFile.
struct GuardedRange;

/// A regular file mapped into memory, read-only: only what is looked at is read. It takes no file
/// descriptor, so that there may be more of them than a process may have open.
///
/// The size is fixed when it is opened. If another program shortens or rewrites the file later,
/// what was lost reads as zeros and checked() throws; a file that is replaced by renaming stays
/// whole here. The first one takes SIGBUS for its own memory and passes all others on to whoever
/// had it.
class MappedFile {
 public:
  /// Fails as InputFile does.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::uint8_t> bytes() const { return bytes_; }
  const std::string& name() const { return name_; }

  /// Throws DataError if the file is no longer what was opened.
  void require_unchanged() const;

  /// Takes no memory for some of the bytes, until they are looked at again; bytes that are not the
  /// file's are left alone.
  void forget(std::span<const std::uint8_t> bytes) const;

  /// Returns what `read` makes of the bytes. If the file changed meanwhile, that is the error, and
  /// nothing that `read` returned or threw.
  template <typename Read>
  auto checked(const Read& read) const {
    try {
      if constexpr (std::is_void_v<decltype(read())>) {
        read();
        require_unchanged();
      } else {
        auto result = read();
        require_unchanged();
        return result;
      }
    } catch (const std::exception&) {
      require_unchanged();
      throw;
    }
  }

 private:
  std::string name_;
  std::filesystem::path path_;
  struct stat opened_ {};
  std::span<const std::uint8_t> bytes_;
  GuardedRange* range_ = nullptr;
};

}  // namespace lockstep
