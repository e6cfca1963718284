#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/core/error.h"

namespace lockstep::net {

/// Writes the fields of a message one after the other, numbers in big-endian order.
class ByteWriter {
 public:
  ByteWriter& byte(std::uint8_t value);
  template <typename Enum>
  requires std::is_enum_v<Enum> ByteWriter& byte(Enum value) {
    return byte(static_cast<std::uint8_t>(value));
  }
  ByteWriter& count(std::uint32_t value);
  ByteWriter& number(std::int64_t value);
  ByteWriter& raw(std::string_view bytes);   ///< without their length
  ByteWriter& text(std::string_view bytes);  ///< any bytes, after their length
  ByteWriter& texts(const std::vector<std::string>& all);

  const std::string& bytes() const { return bytes_; }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads the fields of a message. Every call throws DataError where the message ends too early;
/// nothing takes more memory than the message has bytes.
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

  /// Reads an integer within that range. Throws DataError for any other.
  int within(int least, int most);

  /// Reads an enumerator. Throws DataError, which names that service, for one behind the last.
  template <typename Enum>
  Enum one_of(Enum last, const char* service) {
    const std::uint8_t value = byte();
    if (value > static_cast<std::uint8_t>(last))
      throw DataError(concat(service, ": a message of an unknown kind: ", int{value}));
    return static_cast<Enum>(value);
  }

  /// Throws DataError if anything is left.
  void finish() const;

 private:
  std::string_view rest_;
};

/// The bytes that are read from a connection at once.
inline constexpr std::size_t kReadSize = std::size_t{1} << 16;

/// The largest message in bytes, before and after authentication.
inline constexpr std::size_t kLargestHandshake = 1024;
inline constexpr std::size_t kLargestMessage = std::size_t{1} << 20;

/// Returns a message after its length in four bytes, as it is sent over a connection.
std::string frame_of(std::string_view message);

/// Splits the bytes of a connection, which come in pieces of any size, into messages.
class FrameDecoder {
 public:
  explicit FrameDecoder(std::size_t most) : most_(most) {}

  /// Refuses longer messages from now on.
  void set_most(std::size_t most) { most_ = most; }

  void feed(std::string_view bytes);

  /// Returns the next whole message, if it has arrived. Throws DataError for an empty or too long
  /// one, as soon as its length is known.
  std::optional<std::string> next();

 private:
  std::size_t most_;
  std::string bytes_;
  std::size_t begin_ = 0;  // of what was not returned yet
};

}  // namespace lockstep::net
