#include <array>

#include "lockstep/data/image_folder_list.h"

namespace lockstep::data {
namespace {

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

/// Says how many bytes the character at the front has, 0 if it is no UTF-8 (RFC 3629) or a control
/// character.
std::size_t printable_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const std::size_t count = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < count) return 0;
  for (std::size_t i = 1; i < count; ++i) {
    if (!is_continuation(text[i])) return 0;
  }
  const unsigned char second = byte(1);
  const bool is_too_long = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool is_surrogate = first == 0xed && second >= 0xa0;
  const bool is_beyond = first == 0xf4 && second >= 0x90;
  const bool is_control = first == 0xc2 && second < 0xa0;
  return is_too_long || is_surrogate || is_beyond || is_control ? 0 : count;
}

std::string escaped(char c) {
  constexpr std::array kDigits{'0', '1', '2', '3', '4', '5', '6', '7',
                               '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'};
  if (c == '\n') return "\\n";
  if (c == '\t') return "\\t";
  const auto byte = static_cast<unsigned char>(c);
  return {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
}

}  // namespace

std::string printable(std::string_view path) {
  std::string text;
  while (!path.empty()) {
    const std::size_t count = printable_bytes(path);
    text += count == 0 ? escaped(path[0]) : std::string(path.substr(0, count));
    path.remove_prefix(count == 0 ? 1 : count);
  }
  return text;
}

}  // namespace lockstep::data
