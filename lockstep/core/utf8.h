#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// Returns whether a text is UTF-8: no stray or missing bytes, no longer forms, no surrogates.
bool is_utf8(std::string_view text);

/// Quotes a text from outside for a message: at most its first 100 bytes, with what could disturb a
/// terminal as `\x1b`.
std::string printable(std::string_view text);

/// Returns a path as messages show it: what is not printable UTF-8 becomes `\n`, `\t` or `\x` and
/// two digits.
std::string printable_path(std::string_view path);

}  // namespace lockstep
