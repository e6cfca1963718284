#include "lockstep/net/endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/message_of.h"

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

TEST(Endpoint, LoopbackIsThisHostAlone) {
  for (const char* host : {"localhost", "127.0.0.1", "127.5.6.7", "::1"})
    EXPECT_TRUE(is_loopback(host)) << host;
  for (const char* host : {"0.0.0.0", "10.0.0.1", "128.0.0.1", "node0", "localhost.example", "::"})
    EXPECT_FALSE(is_loopback(host)) << host;
}

TEST(Endpoint, ListensAtOneAddressOnce) {
  const Endpoint endpoint{.host = "127.0.0.1", .port = 0};
  const auto listener = listen_at(endpoint);
  ASSERT_TRUE(listener);
  EXPECT_EQ(own_address(*listener), "127.0.0.1");
  const Endpoint taken{.host = "127.0.0.1", .port = port_of_socket(*listener)};
  EXPECT_FALSE(listen_at(taken)) << "somebody serves there";
  EXPECT_TRUE(listen_at({.host = "127.0.0.2", .port = taken.port})) << "that is another address";
  EXPECT_FALSE(listen_at({.host = "192.0.2.1", .port = 29400})) << "no address of this host";
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

}  // namespace
}  // namespace lockstep::net
