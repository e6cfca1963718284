#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace lockstep {

/// Limits of what a file may ask for.
struct JsonLimits {
  std::size_t bytes = std::size_t{1} << 20;
  std::size_t depth = 16;  ///< objects and lists within each other
};

/// Parses JSON that may come from a stranger. What is no JSON in UTF-8, above the limits, or has a
/// key twice in one object is a DataError that begins with `file`.
nlohmann::json parse_strict_json(
    std::string_view text, const std::string& file, const JsonLimits& limits = {});

}  // namespace lockstep
