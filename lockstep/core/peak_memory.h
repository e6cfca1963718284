#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep {

/// Returns the most memory in bytes that this process has had resident since its program began:
/// libraries and pages shared with other processes count in full. Nothing where the operating
/// system does not report it.
std::optional<std::int64_t> peak_memory_bytes();

/// Finds that number (VmHWM) in the text of a /proc/PID/status.
std::optional<std::int64_t> parse_peak_memory(std::string_view status);

}  // namespace lockstep
