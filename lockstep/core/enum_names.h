#pragma once

#include <array>
#include <string>
#include <vector>

namespace lockstep {

/// One value of an enumeration and its name on the command line.
template <typename Enum>
struct EnumName {
  Enum value;
  const char* name;
};
// Clang 14 deduces no aggregate's type itself.
template <typename Value>
EnumName(Value, const char*) -> EnumName<Value>;

/// An enumeration with a table of names beside it, which serves writing and reading. The table
/// stands in the enumeration's header: a compiler asks once whether there is one, and keeps the
/// answer.
///
///     enum class Balance { kTime, kSize };
///     constexpr auto names_of(Balance) {
///       return std::array{EnumName{Balance::kTime, "time"}, EnumName{Balance::kSize, "size"}};
///     }
template <typename Enum>
concept NamedEnum = requires(Enum value) {
  names_of(value);
};

/// Returns the name of a value.
template <NamedEnum Enum>
const char* name_of(Enum value) {
  for (const auto& entry : names_of(value))
    if (entry.value == value) return entry.name;
  return "?";
}

/// Returns all names, in the order of the table.
template <NamedEnum Enum>
std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const auto& entry : names_of(Enum{})) names.emplace_back(entry.name);
  return names;
}

}  // namespace lockstep
