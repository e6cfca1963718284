#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/formats/byte_stream.h"

struct z_stream_s;

namespace lockstep {

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
