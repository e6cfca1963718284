#pragma once

#include <algorithm>
#include <chrono>

// Note [Patience]
// How long a launcher waits for what. A timeout that contains another is computed from it, in the
// order of this page; restart_test.cpp checks the order of the others.

namespace lockstep::launch::patience {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Of the ranks of one node.

/// For ranks to notice that a peer has ended, which takes milliseconds on this host and over a
/// connection; an end that they do not notice must not delay the restart.
inline constexpr milliseconds kToNotice{500};
/// For the rank that is the cause to end by itself, with its message and code, when others that
/// noticed its failure have ended before it.
inline constexpr milliseconds kForTheCause{500};
/// Between the first and the last exit of a group that stops.
inline constexpr seconds kTogether{1};
/// For a remaining rank to save what all have trained.
inline constexpr seconds kToSave{60};
/// For a killed process to end: the kernel may hold it, or have much memory to free.
inline constexpr seconds kToDie{10};
/// For the output of processes that cannot be killed, being stuck in the kernel.
inline constexpr seconds kLastOutput{1};

/// Returns the longest time that a launcher's processes take to end: they save, are asked to end
/// within `grace`, are killed.
constexpr milliseconds to_end(milliseconds grace) {
  return kForTheCause + std::max<milliseconds>(kToSave, grace) + grace + kToDie + kLastOutput;
}

/// For another launcher, until its processes have ended and it has reported that.
constexpr milliseconds for_a_launcher(milliseconds grace) { return to_end(grace) + seconds(5); }

// Of nodes that find each other, one of which serves. A node is lost after `dead_after` of silence,
// whether or not its ranks have ended: a connection tells that it lives.

/// For one try to connect, and each message of the handshake.
inline constexpr seconds kToConnect{2};
/// Between two attempts to reach a server at the address where the world was founded, and for each
/// of them.
inline constexpr milliseconds kToAskAgain{500};

/// For the successor of a lost server, which may notice the loss so much later than others.
constexpr milliseconds for_a_successor(milliseconds dead_after) { return dead_after + kToConnect; }

/// For the other nodes to come to the new server, after it has waited in vain for `tried` others
/// before it: so have they.
constexpr milliseconds to_regather(milliseconds dead_after, int tried) {
  return (tried + 1) * (for_a_successor(dead_after) + kToConnect);
}

/// For the nodes of an earlier world to say that it goes on elsewhere, before a new one is founded
/// at its old address: they notice the loss, serve, and ask there.
constexpr milliseconds to_found(milliseconds dead_after) { return dead_after + 4 * kToAskAgain; }

/// For all nodes to hear that the run is over.
inline constexpr seconds kFarewell{5};

/// Returns the milliseconds until a moment of its clock, 0 when that has passed, as poll() takes
/// them.
template <typename Clock, typename Duration>
int milliseconds_until(std::chrono::time_point<Clock, Duration> moment) {
  const auto left = std::chrono::ceil<milliseconds>(moment - Clock::now());
  return static_cast<int>(std::max<milliseconds::rep>(0, left.count()));
}

}  // namespace lockstep::launch::patience
