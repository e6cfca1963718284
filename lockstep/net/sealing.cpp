#include "lockstep/net/sealing.h"

#include "lockstep/core/error.h"
#include "lockstep/net/message_bytes.h"

namespace lockstep::net {
namespace {

constexpr std::size_t kMarkBytes = 16;  // half of an HMAC-SHA256, as RFC 2104 allows

// The number of the message is not sent: both ends count.
std::string mark_of(const Key& key, std::int64_t number, std::string_view message) {
  const Key digest = hmac_sha256(key, ByteWriter().number(number).raw(message).bytes());
  return std::string(bytes_of(digest).substr(0, kMarkBytes));
}

}  // namespace

std::string Sealer::seal(std::string_view message) {
  return mark_of(key_, number_++, message).append(message);
}

std::string Opener::open(std::string_view sealed) {
  if (sealed.size() < kMarkBytes) throw DataError("message: it has no mark");
  const std::string_view message = sealed.substr(kMarkBytes);
  if (!equal_in_constant_time(sealed.substr(0, kMarkBytes), mark_of(key_, number_++, message)))
    throw DataError("message: authentication failed");
  return std::string(message);
}

}  // namespace lockstep::net
