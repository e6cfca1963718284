#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "lockstep/flags/flag_table.h"

namespace lockstep::launch {

/// How long a rank may make no progress, unless the user says otherwise.
inline constexpr std::chrono::milliseconds kUsualHangTimeout{120'000};

/// Declares the flag for it, of all verbs that start ranks.
template <typename Options>
Flag<Options> hang_timeout_flag(typename Flag<Options>::Read read = nullptr) {
  return flag_by<Options>("--hang-timeout", "TIME",
      "a rank without progress for so long has failed; 0: never", std::move(read))
      .usually("2m");
}

/// Understands its value: a time span, or 0. Throws InvalidArgument.
std::chrono::milliseconds hang_timeout_of(const std::string& text);

}  // namespace lockstep::launch
