#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Returns the number that the whole text is, or nothing: no blanks, no plus sign, nothing after
/// it, within the range of the type, and no infinity or NaN. Defined for int, std::int64_t,
/// std::uint64_t (digits only) and double.
template <typename Number>
std::optional<Number> parse_number(std::string_view text);

/// Returns the words with `between` between them.
std::string joined(const std::vector<std::string>& words, std::string_view between = ", ");

/// Returns the pieces between separators, empty ones too: "a,,b" has three, "" has one.
std::vector<std::string> split(std::string_view text, char separator);

}  // namespace lockstep
