#include "lockstep/launch/hang/hang_timeout.h"

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::launch {

std::chrono::milliseconds hang_timeout_of(const std::string& text) {
  if (text == "0") return std::chrono::milliseconds(0);
  constexpr double kShortest = 0.1, kLongest = 1e7;  // a third of a year
  const double seconds = parse_duration(text);
  check(seconds >= kShortest && seconds <= kLongest, "--hang-timeout: must be from ", kShortest,
      "s to ", kLongest, "s, or 0 for never: ", text);
  return std::chrono::milliseconds(static_cast<long>(seconds * 1000));
}

}  // namespace lockstep::launch
