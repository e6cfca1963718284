#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/formats/output_file.h"

struct z_stream_s;

namespace lockstep::data {

/// A new file written in pieces of any size, plain or as one gzip member without name and time.
class SetFile final : public ByteSink {
 public:
  SetFile(const std::filesystem::path& path, bool gzip);
  ~SetFile() override;

  /// Writes what is left and closes the file; gives its size in bytes.
  std::uint64_t close();

 private:
  void put(std::span<const std::uint8_t> bytes) override;

  struct EndDeflate {
    void operator()(z_stream_s* stream) const noexcept;
  };

  void deflate_some(std::span<const std::uint8_t> bytes, int flush);
  void flush_if_full();
  void flush();

  OutputFile file_;
  std::unique_ptr<z_stream_s, EndDeflate> stream_;
  std::vector<std::uint8_t> buffer_;
  std::uint64_t bytes_ = 0;
};

}  // namespace lockstep::data
