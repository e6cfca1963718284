#pragma once

#include <cstdint>
#include <string>

namespace lockstep::launch {

/// Reads a rate as `tc` writes it, `500mbit`, `2.5gbit`, and gives bits per second. Throws
/// InvalidArgument for another form or one out of 64kbit to 1000gbit.
std::int64_t parse_rate(const std::string& text);

/// Gives how many bytes may pass at once at a rate: what two milliseconds carry, at least 16 KiB.
std::int64_t burst_bytes(std::int64_t bits_per_second);

}  // namespace lockstep::launch
