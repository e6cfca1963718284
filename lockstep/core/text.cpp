#include "lockstep/core/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lockstep/core/error.h"

namespace lockstep {
namespace {

constexpr double kMostSeconds = 30 * 365.25 * 86400;

/// Returns how long a unit is; 0 for a letter that is none.
double seconds_of(char unit) {
  constexpr std::pair<char, double> kUnits[] = {{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}};
  for (const auto& [letter, seconds] : kUnits)
    if (letter == unit) return seconds;
  return 0;
}

[[noreturn]] void refuse(const std::string& text) {
  throw InvalidArgument("duration: not a time span above zero: \"" + text +
                        "\"; write 90s, 30m, 2h, 1h30m or seconds");
}

std::string with_dashes(std::string word) {
  std::replace(word.begin(), word.end(), '_', '-');
  return word;
}

bool begins(const std::string& word, const std::string& known) {
  constexpr std::size_t kTelling = 5;
  return word.size() >= kTelling && known.compare(0, word.size(), word) == 0;
}

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

std::string escaped(std::uint8_t byte) { return "\\x" + hex_of({&byte, 1}); }

constexpr double kMostBytes = 0x1p50;

// Empty without a unit, 0 for one that is none.
double unit_of(std::string_view letter) {
  if (letter.empty()) return 1;
  const auto place = std::string_view("KMGT").find(letter);
  if (letter.size() != 1 || place == std::string_view::npos) return 0;
  return std::pow(1024., static_cast<double>(place + 1));
}

}  // namespace

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  if constexpr (std::is_floating_point_v<Number>) {
    if (!std::isfinite(number)) return std::nullopt;
  }
  return number;
}

template std::optional<int> parse_number(std::string_view);
template std::optional<std::int64_t> parse_number(std::string_view);
template std::optional<std::uint64_t> parse_number(std::string_view);
template std::optional<double> parse_number(std::string_view);

std::string text_in(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

std::optional<std::int64_t> keyed_number(const std::string& text, const std::string& key) {
  std::istringstream words(text);
  std::string word;
  std::int64_t value = 0;
  while (words >> word) {
    if (word == key && words >> value) return value;
  }
  return std::nullopt;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string joined(const std::vector<std::string>& words, std::string_view between) {
  std::string text;
  for (const std::string& word : words) {
    if (&word != &words.front()) text += between;
    text += word;
  }
  return text;
}

std::string first_of(const std::vector<std::string>& words, std::size_t size) {
  const std::size_t shown = std::min(kMostListed, words.size());
  const auto end = words.begin() + static_cast<std::ptrdiff_t>(shown);
  const std::string text = joined({words.begin(), end});
  return size == shown ? text : concat(text, " and ", size - shown, " more");
}

std::string first_lines(const std::string& text) {
  std::size_t end = 0;
  for (std::size_t i = 0; i < kMostListed && end < text.size(); ++i)
    end = std::min(text.find('\n', end), text.size() - 1) + 1;
  const auto more = std::count(text.begin() + static_cast<std::ptrdiff_t>(end), text.end(), '\n');
  return text.substr(0, end) + (more == 0 ? "" : concat("  ... and ", more, " more\n"));
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> pieces;
  for (std::size_t begin = 0;;) {
    const std::size_t end = text.find(separator, begin);
    pieces.emplace_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return pieces;
    begin = end + 1;
  }
}

double parse_duration(const std::string& text) {
  const char* position = text.data();
  const char* const end = position + text.size();
  double total = 0;
  double smallest_unit = INFINITY;
  while (position != end) {
    double number = 0;
    const auto [stop, error] = std::from_chars(position, end, number, std::chars_format::general);
    if (error != std::errc() || number < 0) refuse(text);
    const bool bare = stop == end;
    const double unit = bare ? 1 : seconds_of(*stop);
    // A bare number stands alone, and units fall from left to right: 30m2h and 1h5 are slips, not
    // spans.
    if (unit == 0 || unit >= smallest_unit || (bare && position != text.data())) refuse(text);
    total += number * unit;
    smallest_unit = unit;
    position = bare ? end : stop + 1;
  }
  if (!(total > 0)) refuse(text);
  check(total <= kMostSeconds, "duration: more than 30 years: ", printable(text));
  return total;
}

std::string format_duration(double seconds) {
  char text[48];
  if (seconds < 59.95) {
    std::snprintf(text, sizeof text, "%.1f s", seconds);
    return text;
  }
  const auto whole = static_cast<long long>(std::llround(seconds));
  const long long hours = whole / 3600, minutes = whole / 60 % 60, rest = whole % 60;
  if (hours > 0) {
    std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", hours, minutes, rest);
  } else {
    std::snprintf(text, sizeof text, "%lld:%02lld", minutes, rest);
  }
  return text;
}

std::size_t edit_distance(const std::string& from, const std::string& to) {
  // Three rows of the usual table: a swap of neighbours looks two rows back.
  std::vector<std::size_t> before(to.size() + 1), above(to.size() + 1), row(to.size() + 1);
  for (std::size_t j = 0; j <= to.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= from.size(); ++i) {
    std::swap(before, above);
    std::swap(above, row);
    row[0] = i;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const std::size_t replaced = above[j - 1] + (from[i - 1] == to[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, above[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& known) {
  const std::string asked = with_dashes(word);
  const std::string* best = nullptr;
  std::size_t least = asked.size() / 3 + 1;
  for (const std::string& name : known) {
    const std::size_t distance = begins(asked, name) ? 1 : edit_distance(asked, name);
    if (distance >= least) continue;
    least = distance;
    best = &name;
  }
  if (best == nullptr) return "";
  return "; did you mean " + *best + "?";
}

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

std::int64_t parse_bytes(const std::string& text) {
  const char* const end = text.data() + text.size();
  double number = 0;
  const auto [stop, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  const double unit = unit_of({stop, static_cast<std::size_t>(end - stop)});
  const bool is_amount = error == std::errc() && unit > 0 && !std::signbit(number);
  check(is_amount && number * unit <= kMostBytes,
      "bytes: must be an amount such as 2G, 1.5G, 500M, 64K, or a number of bytes, at most 1024T: ",
      printable(text));
  return std::llround(number * unit);
}

std::string hex_of(std::span<const std::uint8_t> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

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
