#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
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

/// The largest message in bytes, before and after authentication.
inline constexpr std::size_t kMostOfAStranger = 1024;
inline constexpr std::size_t kMostOfAFriend = std::size_t{1} << 20;

/// Returns a message with its length, in four bytes, before it: so it goes over a connection.
std::string frame_of(std::string_view message);

/// Cuts what comes over a connection, in pieces of any size, into messages.
class FrameDecoder {
 public:
  explicit FrameDecoder(std::size_t most) : most_(most) {}

  /// Longer messages are refused from now on.
  void set_most(std::size_t most) { most_ = most; }

  void feed(std::string_view bytes);

  /// Returns the next whole message; nothing if it is not there yet. Throws DataError for one of
  /// no bytes or of too many, as soon as its length is known.
  std::optional<std::string> next();

 private:
  std::size_t most_;
  std::string bytes_;
  std::size_t begin_ = 0;  // what lies before was returned
};

}  // namespace lockstep::net
