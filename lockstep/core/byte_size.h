#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

/// Reads an amount of memory in bytes: `2G`, `1.5G`, `500M`, `64K`, `1T`, each 1024 times the one
/// below, or a bare number of bytes.
///
/// Throws InvalidArgument that shows the accepted forms; no amount is above 1024 T.
std::int64_t parse_bytes(const std::string& text);

}  // namespace lockstep
