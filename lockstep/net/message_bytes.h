#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::net {

/// Writes the fields of a message one behind the other, numbers with the highest byte first.
class ByteWriter {
 public:
  ByteWriter& byte(std::uint8_t value);
  ByteWriter& count(std::uint32_t value);
  ByteWriter& number(std::int64_t value);
  ByteWriter& raw(std::string_view bytes);   ///< without their length
  ByteWriter& text(std::string_view bytes);  ///< any bytes, behind their length
  ByteWriter& texts(const std::vector<std::string>& all);

  const std::string& bytes() const { return bytes_; }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads them again. Every call throws DataError where the message ends too early; nothing takes
/// more memory than the message has bytes.
class ByteReader {
 public:
  /// The bytes must stay where they are.
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  std::uint8_t byte();
  std::uint32_t count();
  std::int64_t number();
  std::string_view raw(std::size_t size);
  std::string text();
  std::vector<std::string> texts();

  /// Reads a whole number of that range. Throws DataError for another.
  int within(int least, int most);

  /// Throws DataError if anything is left.
  void finish() const;

 private:
  std::string_view rest_;
};

}  // namespace lockstep::net
