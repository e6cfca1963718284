#include "lockstep/core/network/route.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Route, TowardsTheLoopbackIsTheLoopback) {
  EXPECT_EQ(address_towards("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(address_towards("127.0.1.1"), "127.0.0.1");
}

TEST(Route, TowardsOneOfOurOwnAddressesIsThatAddress) {
  const std::string own = address_outwards();
  if (!own.empty()) EXPECT_EQ(address_towards(own), own);
  EXPECT_FALSE(names_loopback(own));
}

TEST(Route, TowardsWhatHasNoAddressIsNone) {
  EXPECT_EQ(address_towards("no-such-host.invalid"), "");
}

TEST(ReachableName, LeavesNamesAloneThatOthersReach) {
  for (const char* host : {"127.0.0.1", "localhost", "::1", "192.0.2.7", "no-such-host.invalid"})
    EXPECT_EQ(reachable_name(host), host);
}

}  // namespace
}  // namespace lockstep
