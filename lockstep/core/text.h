#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Returns the number that the whole text is, or nothing: no blanks, no plus sign, nothing after
/// it, within the range of the type, and no infinity or NaN. Defined for int, std::int64_t,
/// std::uint64_t (digits only) and double.
template <typename Number>
std::optional<Number> parse_number(std::string_view text);

/// Returns what a file holds, one of /proc too; empty where it cannot be read.
std::string text_in(const std::filesystem::path& file);

/// Finds the number that follows a key in text such as the kernel's: `KEY VALUE` on each line.
std::optional<std::int64_t> keyed_number(const std::string& text, const std::string& key);

/// Returns the first line of a text: LibTorch's messages go on with a page of C++ frames.
std::string first_line(const std::string& text);

/// Returns the words with `between` between them.
std::string joined(const std::vector<std::string>& words, std::string_view between = ", ");

/// The number of list items that a message names before it only counts.
inline constexpr std::size_t kMostListed = 10;

/// Joins the first words of a list that has `size` of them: `a, b and 1490 more`.
std::string first_of(const std::vector<std::string>& words, std::size_t size);

/// Shortens a text to its first lines: `  ... and 1490 more` takes the place of the others.
std::string first_lines(const std::string& text);

/// Returns the pieces between separators, empty ones too: "a,,b" has three, "" has one.
std::vector<std::string> split(std::string_view text, char separator);

/// Reads a time span in seconds: `90s`, `30m`, `2h`, `1h30m`, `1.5h`, or a bare number of seconds.
///
/// Throws InvalidArgument that shows the accepted forms; no span is longer than 30 years.
double parse_duration(const std::string& text);

/// Writes a time span for people: `4.2 s`, `1:05`, `2:03:04`.
std::string format_duration(double seconds);

/// Counts the letters to insert, delete, replace, or swap with their neighbour, that make one word
/// the other.
std::size_t edit_distance(const std::string& from, const std::string& to);

/// Proposes the known word that is nearest: `; did you mean --nproc-per-node?`; empty text if none
/// is near.
///
/// Underscores count as dashes; a word that begins a known one is near.
std::string did_you_mean(const std::string& word, const std::vector<std::string>& known);

/// Returns whether a text is UTF-8: no stray or missing bytes, no longer forms, no surrogates.
bool is_utf8(std::string_view text);

/// Quotes an untrusted text for a message: at most its first 100 bytes, with control characters
/// escaped as `\x1b`.
std::string printable(std::string_view text);

/// Returns a path as messages show it: what is not printable UTF-8 becomes `\n`, `\t` or `\x` and
/// two digits.
std::string printable_path(std::string_view path);

/// Reads an amount of memory in bytes: `2G`, `1.5G`, `500M`, `64K`, `1T`, each 1024 times the one
/// below, or a bare number of bytes.
///
/// Throws InvalidArgument that shows the accepted forms; no amount is above 1024 T.
std::int64_t parse_bytes(const std::string& text);

/// Writes bytes as small hexadecimal letters, two for each.
std::string hex_of(std::span<const std::uint8_t> bytes);

/// Writes bytes as base64 (RFC 4648), with padding, on one line.
std::string base64(std::span<const std::uint8_t> bytes);

}  // namespace lockstep
