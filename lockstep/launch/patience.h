#pragma once

#include <algorithm>
#include <chrono>

// Note [Patience]
// How long a launcher waits for what. Who waits for somebody who waits himself needs more patience
// than that one: what contains another patience is made of it, in the order of this page.
// patience_test.cpp holds the order of those that are not.

namespace lockstep::launch::patience {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Of the ranks of one node.

/// For ranks that wait for a process that has ended to see that, which takes milliseconds, on this
/// host and by a connection; one that they do not hear of must not delay the restart.
inline constexpr milliseconds kToNotice{500};
/// For the one whose failure the others only noticed to end by itself, with its own words and code.
inline constexpr milliseconds kForTheCause{500};
/// For all ranks of a group that stops to end, once one has.
inline constexpr seconds kTogether{1};
/// For one of those that are left to save what all have trained.
inline constexpr seconds kToSave{60};
/// For a killed process to end: the kernel may hold it, or have much memory to free.
inline constexpr seconds kToDie{10};
/// For the output of processes that cannot be killed, being stuck in the kernel.
inline constexpr seconds kLastOutput{1};

/// Returns the longest time in which a launcher's processes end, once they are to: they save, are
/// asked with `grace` to do so, are killed.
constexpr milliseconds to_end(milliseconds grace) {
  return kForTheCause + std::max<milliseconds>(kToSave, grace) + grace + kToDie + kLastOutput;
}

/// For another launcher whose processes are to end, and its last words.
constexpr milliseconds for_a_launcher(milliseconds grace) { return to_end(grace) + seconds(5); }

// Of nodes that find each other, one of which serves. A node is lost after `dead_after` of silence.
// That its ranks have yet to end matters to none of these: a connection tells that it lives.

/// For one try to connect, and each message of the handshake.
inline constexpr seconds kToConnect{2};
/// Between two questions at the address where the world was founded, whether somebody serves there
/// who does not know where it is now, and for each of them.
inline constexpr milliseconds kToAskAgain{500};

/// For the next that would serve: it may hear of the loss as late as this after others have.
constexpr milliseconds for_an_heir(milliseconds dead_after) { return dead_after + kToConnect; }

/// For the other nodes to come to the one that serves now, after it has waited in vain for so many
/// that came before it: the others have as well.
constexpr milliseconds to_regather(milliseconds dead_after, int tried) {
  return (tried + 1) * (for_an_heir(dead_after) + kToConnect);
}

/// For the nodes of an earlier world to say that it goes on elsewhere, before a new one is founded
/// at the address where that was: they hear of the loss, serve, and ask there.
constexpr milliseconds to_found(milliseconds dead_after) { return dead_after + 4 * kToAskAgain; }

/// For the nodes of a world that is over to hear it.
inline constexpr seconds kFarewell{5};

}  // namespace lockstep::launch::patience
