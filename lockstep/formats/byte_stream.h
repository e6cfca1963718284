#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

/// A source of bytes: a parser does not know whether they come from a file, gzip or memory.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  /// Fills the front of `out` and returns how many bytes; fewer than asked only at the end.
  virtual std::size_t read(std::span<std::uint8_t> out) = 0;

  /// Returns the next bytes, `most` or all up to the end. Memory grows with those that come.
  std::vector<std::uint8_t> read_up_to(std::size_t most) {
    constexpr std::size_t kFirstPiece = 64 * 1024;
    std::vector<std::uint8_t> bytes;
    while (bytes.size() < most) {
      const std::size_t before = bytes.size();
      bytes.resize(std::min(most, std::max(kFirstPiece, 2 * before)));
      const std::size_t seen = before + read(std::span(bytes).subspan(before));
      if (seen == bytes.size()) continue;
      bytes.resize(seen);
      break;
    }
    return bytes;
  }

  /// Names where the bytes come from, for messages.
  virtual const std::string& name() const = 0;
};

/// The bytes of a buffer, which must outlive it.
class MemorySource final : public ByteSource {
 public:
  MemorySource(std::span<const std::uint8_t> bytes, std::string name)
      : rest_(bytes), name_(std::move(name)) {}

  std::size_t read(std::span<std::uint8_t> out) override {
    const std::size_t count = std::min(out.size(), rest_.size());
    std::copy_n(rest_.begin(), count, out.begin());
    rest_ = rest_.subspan(count);
    return count;
  }
  const std::string& name() const override { return name_; }

 private:
  std::span<const std::uint8_t> rest_;
  std::string name_;
};

/// A sink of bytes: a writer does not know whether they go to a file, a temporary one or a hash.
class ByteSink {
 public:
  virtual ~ByteSink() = default;

  /// Takes all of the bytes, or throws.
  void write(std::span<const std::uint8_t> bytes) { put(bytes); }
  void write(std::string_view text) {
    put(std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
  }

 private:
  virtual void put(std::span<const std::uint8_t> bytes) = 0;
};

}  // namespace lockstep
