#include "lockstep/launch/patience.h"

#include <gtest/gtest.h>

#include "lockstep/launch/launch_options.h"

// Who waits for somebody who waits himself has more patience than that one.
namespace lockstep::launch::patience {
namespace {

TEST(Patience, ContainsWhatItWaitsFor) {
  EXPECT_LE(kForTheCause, kTogether);
  EXPECT_LT(kToNotice, kToSave);
  for (const milliseconds grace : {milliseconds(0), milliseconds(30'000), milliseconds(600'000)}) {
    EXPECT_GE(to_end(grace), kForTheCause + kToSave + kToDie + kLastOutput) << "after a failure";
    EXPECT_GE(to_end(grace), grace + kToDie + kLastOutput) << "when asked";
    EXPECT_GE(to_end(grace), kToSave + grace) << "when asked while they save";
    EXPECT_GT(for_a_launcher(grace), to_end(grace));
  }
}

TEST(Patience, OfNodesContainsThatOfTheOthers) {
  for (const milliseconds dead_after : {milliseconds(100), RendezvousOptions().dead_after}) {
    EXPECT_GT(for_an_heir(dead_after), dead_after) << "it may hear of the loss so much later";
    // The others may try one in vain for so long whom we could not reach at once.
    EXPECT_GT(to_regather(dead_after, 0), for_an_heir(dead_after));
    EXPECT_GT(to_regather(dead_after, 2), 3 * for_an_heir(dead_after));
    // They hear of the loss, serve, and ask, which may begin just before we can answer.
    EXPECT_GE(to_found(dead_after), dead_after + 2 * (kToAskAgain + kToAskAgain));
  }
  EXPECT_LE(to_found(RendezvousOptions().dead_after), RendezvousOptions().last_call);
}

}  // namespace
}  // namespace lockstep::launch::patience
