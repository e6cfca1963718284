#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::net {

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
