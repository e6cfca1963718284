#pragma once

namespace lockstep::bench {

/// Tells whether there are more places than cores, so that places take each other's time and a
/// comparison with fewer places is no fair one.
constexpr bool oversubscribed(int places, int cores) { return places > cores; }

}  // namespace lockstep::bench
