#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::testing {

/// Decodes base64 (RFC 4648) up to the first byte that does not belong to it.
inline std::vector<std::uint8_t> from_base64(std::string_view text) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<std::uint8_t> bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char letter : text) {
    const std::size_t value = kLetters.find(letter);
    if (value == std::string_view::npos) break;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<std::uint8_t>(bits >> count));
  }
  return bytes;
}

/// Returns the PNG files that a page has in itself, in their order.
inline std::vector<std::vector<std::uint8_t>> data_uris(std::string_view page) {
  constexpr std::string_view kBegin = "src=\"data:image/png;base64,";
  std::vector<std::vector<std::uint8_t>> files;
  for (auto at = page.find(kBegin); at != std::string_view::npos; at = page.find(kBegin, at)) {
    at += kBegin.size();
    files.push_back(from_base64(page.substr(at)));
  }
  return files;
}

}  // namespace lockstep::testing
