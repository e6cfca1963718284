#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/formats/byte_stream.h"

struct z_stream_s;

namespace lockstep {

/// Opens a regular file to read.
///
/// A path that is missing, a loop of links, a directory, a FIFO or a device is a DataError and
/// never blocks; what the operating system refuses for another reason (permission, too many files)
/// is a std::system_error.
FileDescriptor open_regular_file(const std::filesystem::path& path);

/// A regular file that is read from its start.
class InputFile final : public ByteSource {
 public:
  /// Fails as open_regular_file() does.
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
  ~GunzipSource() override;

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
  std::size_t buffered() const;
  [[noreturn]] void fail(const std::string& reason) const;

  ByteSource& compressed_;
  std::vector<std::uint8_t> buffer_;
  std::uint64_t bytes_taken_ = 0;
  bool is_gzip_ = false;
  bool inside_member_ = false;
  std::unique_ptr<z_stream_s, EndInflate> stream_;
};

}  // namespace lockstep
