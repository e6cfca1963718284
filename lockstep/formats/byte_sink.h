#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep {

/// Takes bytes one after another; a writer does not see whether they go to a file, aside or hashed.
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
