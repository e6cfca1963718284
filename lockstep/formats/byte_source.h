#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lockstep {

/// Gives bytes one after another; a parser does not see whether they come from a file, gzip or
/// memory.
class ByteSource {
 public:
  virtual ~ByteSource() = default;

  /// Fills the front of `out` and returns how many bytes; fewer than asked only at the end.
  virtual std::size_t read(std::span<std::uint8_t> out) = 0;

  /// Names where the bytes come from, for messages.
  virtual const std::string& name() const = 0;
};

/// Gives the bytes of a buffer that outlives it.
class MemorySource final : public ByteSource {
 public:
  MemorySource(std::span<const std::uint8_t> bytes, std::string name);

  std::size_t read(std::span<std::uint8_t> out) override;
  const std::string& name() const override { return name_; }

 private:
  std::span<const std::uint8_t> rest_;
  std::string name_;
};

}  // namespace lockstep
