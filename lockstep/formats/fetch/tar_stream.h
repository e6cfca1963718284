#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <span>
#include <vector>

#include "lockstep/formats/gzip.h"
#include "lockstep/formats/input_file.h"

namespace lockstep {

/// Gives the blocks of a tar file, unpacked if it is gzip, and watches how they grow and end.
class TarStream {
 public:
  TarStream(const std::filesystem::path& path, std::uint64_t ratio);

  /// Gives the next block, valid until the next call; none at the end.
  std::span<const std::uint8_t> next();

  /// Reads on to the end, so that gzip's checksum is looked at, and requires that after the first
  /// `consumed` bytes of all blocks only zeros come, and that the end is marked by two blocks of
  /// zeros (POSIX, ustar).
  void finish(std::uint64_t consumed);

 private:
  /// Counts the bytes that are read from the file.
  class Counted final : public ByteSource {
   public:
    explicit Counted(ByteSource& source) : source_(source) {}
    std::size_t read(std::span<std::uint8_t> out) override;
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

/// Lets what grows out of an archive be at most 1 MiB, or `ratio` times what was read.
bool within_ratio(std::uint64_t grown, std::uint64_t read, std::uint64_t ratio);

}  // namespace lockstep
