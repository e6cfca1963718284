#include <gtest/gtest.h>

#include "lockstep/net/endpoint.h"

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

TEST(Loopback, IsTheHostAloneOfWhoReadsIt) {
  for (const char* host : {"localhost", "127.0.0.1", "127.5.6.7", "::1"})
    EXPECT_TRUE(names_loopback(host)) << host;
  for (const char* host :
      {"0.0.0.0", "10.0.0.1", "128.0.0.1", "node0", "localhost.example", "::", "127.example"})
    EXPECT_FALSE(names_loopback(host)) << host;
}

TEST(Interface, OfNoUseIsSaidSo) {
  EXPECT_EQ(obstacle_of_interface("lo"), "");
  EXPECT_EQ(
      obstacle_of_interface("no-such").find("is no network interface of this host; it can use "),
      0U);
  EXPECT_NE(obstacle_of_interface("").find("lo"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
