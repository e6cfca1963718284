#include "lockstep/formats/base64.h"

#include <algorithm>
#include <cstddef>

namespace lockstep {

std::string base64(std::span<const std::uint8_t> bytes) {
  constexpr const char* kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - at);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i)
      bits = bits << 8 | (i < count ? bytes[at + i] : std::uint32_t{0});
    for (std::size_t i = 0; i < 4; ++i)
      text += i <= count ? kDigits[bits >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

}  // namespace lockstep
