#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace lockstep {

/// Writes bytes as base64 (RFC 4648), with padding, on one line.
std::string base64(std::span<const std::uint8_t> bytes);

}  // namespace lockstep
