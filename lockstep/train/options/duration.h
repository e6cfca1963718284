#pragma once

#include <string>

namespace lockstep {

/// Reads a time span in seconds: `90s`, `30m`, `2h`, `1h30m`, `1.5h`, or a bare number of seconds.
///
/// Throws InvalidArgument that shows the accepted forms.
double parse_duration(const std::string& text);

/// Writes a time span for people: `4.2 s`, `1:05`, `2:03:04`.
std::string format_duration(double seconds);

}  // namespace lockstep
