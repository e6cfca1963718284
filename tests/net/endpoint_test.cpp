#include "lockstep/net/endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "tests/support/other_network.h"

#include "lockstep/core/error.h"

namespace lockstep::net {
namespace {

using ::testing::HasSubstr;

TEST(Endpoint, IsReadAsPeopleWriteIt) {
  const auto read = [](const std::string& text) { return parse_endpoint("x", text, 29400).text(); };
  EXPECT_EQ(read("node0:1234"), "node0:1234");
  EXPECT_EQ(read("node0"), "node0:29400");
  EXPECT_EQ(read("[::1]:80"), "[::1]:80");
  EXPECT_EQ(read("[fe80::2]"), "[fe80::2]:29400");
}

TEST(Endpoint, WhatIsWrongIsSaid) {
  const auto refusal = [](const std::string& text) {
    return testing::message_of<InvalidArgument>([&] { parse_endpoint("x", text, 29400); });
  };
  EXPECT_THAT(refusal("::1:80"), HasSubstr("needs brackets"));
  EXPECT_THAT(refusal(":80"), HasSubstr("names no host"));
  for (const char* port : {"0", "65536", "http", "-1", ""})
    EXPECT_THAT(refusal("node0:" + std::string(port)), HasSubstr("no port between 1 and 65535"));
}

TEST(Endpoint, ListensAtOneAddressOnce) {
  const Endpoint endpoint{.host = "127.0.0.1", .port = 0};
  const auto listener = listen_at(endpoint);
  ASSERT_TRUE(listener);
  EXPECT_EQ(own_address(*listener), "127.0.0.1");
  const Endpoint taken{.host = "127.0.0.1", .port = port_of_socket(*listener)};
  EXPECT_FALSE(listen_at(taken)) << "somebody serves there";
  EXPECT_TRUE(listen_at({.host = "127.0.0.2", .port = taken.port})) << "that is another address";
  EXPECT_FALSE(listen_at({.host = "240.0.0.1", .port = 29400})) << "no address of any host";
  EXPECT_THROW(listen_at({.host = "no.such.host.invalid", .port = 1}), CommError);
}

TEST(Endpoint, ConnectsOrSaysWhyNot) {
  auto listener = listen_at({.host = "127.0.0.1", .port = 0});
  ASSERT_TRUE(listener);
  const Endpoint place{.host = "127.0.0.1", .port = port_of_socket(*listener)};
  const Connection connection = connect_to(place, std::chrono::seconds(5));
  EXPECT_EQ(connection.obstacle, "");
  EXPECT_EQ(peer_address(connection.socket), "127.0.0.1");
  listener.reset();
  EXPECT_THAT(
      connect_to(place, std::chrono::seconds(5)).obstacle, HasSubstr("nobody serves there"));
  EXPECT_THAT(
      connect_to({.host = "no.such.host.invalid", .port = 1}, std::chrono::seconds(5)).obstacle,
      HasSubstr("no address for"));
}

/// A host as it is made here, while a test runs.
class OtherHost : public ::testing::Test {
 protected:
  ~OtherHost() override { testing::other_network() = {}; }

  testing::OtherNetwork& network_ = testing::other_network();
};

// As Debian's /etc/hosts gives a host's name to itself.
TEST_F(OtherHost, ServesWhereOthersReachItThoughItsNameIsItsLoopback) {
  network_ = {.names = {{"node0", {"127.0.1.1"}}}, .own_address = "127.0.0.7"};
  const auto listener = listen_at({.host = "node0", .port = 0});
  ASSERT_TRUE(listener);
  EXPECT_EQ(own_address(*listener), address_outwards());
  EXPECT_NE(own_address(*listener), "127.0.1.1");
  const Endpoint place{.host = "node0", .port = port_of_socket(*listener)};
  const Connection connection = connect_to(place, std::chrono::seconds(5));
  EXPECT_EQ(connection.obstacle, "");
  EXPECT_EQ(peer_address(connection.socket), address_outwards());
  const Endpoint alone{.host = "node0", .port = 0, .is_of_one_host = true};
  EXPECT_EQ(own_address(*listen_at(alone)), "127.0.1.1") << "no other host needs to reach it";
}

// A name may have an address that this host lacks, such as ::1 where there is no IPv6.
TEST_F(OtherHost, ServesAtTheFirstAddressThatItHas) {
  network_.names = {{"node0", {"240.0.0.1", "127.0.0.1"}}, {"away", {"240.0.0.1", "240.0.0.2"}}};
  const auto listener = listen_at({.host = "node0", .port = 0});
  ASSERT_TRUE(listener);
  EXPECT_EQ(own_address(*listener), "127.0.0.1");
  EXPECT_FALSE(listen_at({.host = "node0", .port = port_of_socket(*listener)})) << "it is taken";
  EXPECT_FALSE(listen_at({.host = "away", .port = 0}));
}

TEST_F(OtherHost, WhoseLoopbackIsDownIsToldSoAtOnce) {
  network_.loopback_is_down = true;
  for (const char* host : {"127.0.0.1", "localhost", "::1"}) {
    const auto refusal = [](const auto& call) {
      return testing::message_of<InvalidArgument>(call);
    };
    EXPECT_THAT(refusal([&] { (void)listen_at({.host = host, .port = 0}); }),
        HasSubstr("the loopback interface of this host is down"));
    EXPECT_THAT(
        refusal([&] { (void)connect_to({.host = host, .port = 1}, std::chrono::minutes(1)); }),
        HasSubstr("ip link set lo up"));
  }
}

}  // namespace
}  // namespace lockstep::net
