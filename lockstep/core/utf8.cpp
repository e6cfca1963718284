#include "lockstep/core/utf8.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace lockstep {
namespace {

constexpr std::size_t kMostQuoted = 100;

struct Form {
  std::uint8_t mask;
  std::uint8_t front;
  std::size_t bytes;
  std::uint32_t smallest;
};

// The first bytes of each length, and the smallest code that needs that many bytes.
constexpr std::array kForms{Form{0x80, 0x00, 1, 0}, Form{0xe0, 0xc0, 2, 0x80},
    Form{0xf0, 0xe0, 3, 0x800}, Form{0xf8, 0xf0, 4, 0x10000}};

std::uint8_t byte_at(std::string_view text, std::size_t place) {
  return static_cast<std::uint8_t>(text[place]);
}

/// Returns how many bytes the code point at the front takes; 0 if there is none.
std::size_t code_bytes(std::string_view text) {
  const std::uint8_t first = byte_at(text, 0);
  for (const Form& form : kForms) {
    if ((first & form.mask) != form.front) continue;
    if (text.size() < form.bytes) return 0;
    std::uint32_t code = first & static_cast<std::uint8_t>(~form.mask);
    for (std::size_t i = 1; i < form.bytes; ++i) {
      if ((byte_at(text, i) & 0xc0) != 0x80) return 0;
      code = code << 6 | (byte_at(text, i) & 0x3f);
    }
    const bool is_surrogate = 0xd800 <= code && code <= 0xdfff;
    return code < form.smallest || code > 0x10ffff || is_surrogate ? 0 : form.bytes;
  }
  return 0;
}

std::string escaped(std::uint8_t byte) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  return {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t bytes = code_bytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string printable(std::string_view text) {
  std::string result = "\"";
  const bool is_long = text.size() > kMostQuoted;
  for (const char letter : text.substr(0, kMostQuoted)) {
    const auto byte = static_cast<std::uint8_t>(letter);
    const bool is_plain = 0x20 <= byte && byte < 0x7f && letter != '"' && letter != '\\';
    result += is_plain ? std::string(1, letter) : escaped(byte);
  }
  return result + (is_long ? "...\"" : "\"");
}

std::string printable_path(std::string_view path) {
  std::string text;
  while (!path.empty()) {
    const std::uint8_t first = byte_at(path, 0);
    std::size_t bytes = code_bytes(path);
    const bool is_control =
        bytes == 1 ? first < 0x20 || first == 0x7f : first == 0xc2 && byte_at(path, 1) < 0xa0;
    if (bytes == 0 || is_control) {
      text += first == '\n' ? "\\n" : first == '\t' ? "\\t" : escaped(first);
      bytes = 1;
    } else {
      text += path.substr(0, bytes);
    }
    path.remove_prefix(bytes);
  }
  return text;
}

}  // namespace lockstep
