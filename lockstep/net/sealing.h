#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/net/hmac.h"

namespace lockstep::net {

/// Marks the messages of one direction of a connection as coming from one who knows the key, each
/// at its place: none can be forged, changed, left out, repeated, or sent back to its sender.
class Sealer {
 public:
  explicit Sealer(const Key& key) : key_(key) {}

  /// Returns the message with its mark before it.
  std::string seal(std::string_view message);

 private:
  Key key_;
  std::int64_t number_ = 0;
};

/// Takes the marks off at the other end.
class Opener {
 public:
  explicit Opener(const Key& key) : key_(key) {}

  /// Throws DataError for a message that was not sealed as the next one of this connection.
  std::string open(std::string_view sealed);

 private:
  Key key_;
  std::int64_t number_ = 0;
};

}  // namespace lockstep::net
