#include "lockstep/net/frame.h"

#include "lockstep/core/error.h"
#include "lockstep/net/message_bytes.h"

namespace lockstep::net {
namespace {

constexpr std::size_t kHead = 4;

}  // namespace

std::string frame_of(std::string_view message) { return ByteWriter().text(message).take(); }

void FrameDecoder::feed(std::string_view bytes) {
  bytes_.erase(0, begin_);
  begin_ = 0;
  bytes_ += bytes;
}

std::optional<std::string> FrameDecoder::next() {
  const std::string_view rest = std::string_view(bytes_).substr(begin_);
  if (rest.size() < kHead) return std::nullopt;
  const std::size_t size = ByteReader(rest).count();
  if (size == 0 || size > most_)
    throw DataError(concat("frame: ", size, " bytes are announced, 1 to ", most_, " are allowed"));
  if (rest.size() - kHead < size) return std::nullopt;
  begin_ += kHead + size;
  return std::string(rest.substr(kHead, size));
}

}  // namespace lockstep::net
