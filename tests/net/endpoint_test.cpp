#include "lockstep/net/endpoint.h"

#include <cerrno>
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <system_error>

#include "tests/support/message_of.h"
#include "tests/support/other_network.h"

#include "lockstep/core/error.h"

namespace lockstep::net {
namespace {

using ::testing::HasSubstr;

int races_to_lose = 0;  // calls of listen() that the kernel refuses as if another had been first

}  // namespace
}  // namespace lockstep::net

extern "C" int listen(int socket, int backlog) noexcept {
  static const auto kOfLibc = reinterpret_cast<decltype(&listen)>(::dlsym(RTLD_NEXT, "listen"));
  if (lockstep::net::races_to_lose == 0) return kOfLibc(socket, backlog);
  --lockstep::net::races_to_lose;
  errno = EADDRINUSE;
  return -1;
}

namespace lockstep::net {
namespace {

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

// Two that begin to listen in the same moment may both be refused.
TEST(Endpoint, IsAskedForAgainWhereNobodyListensAfterAll) {
  races_to_lose = 3;
  const auto listener = listen_at({.host = "127.0.0.1", .port = 0});
  EXPECT_EQ(races_to_lose, 0);
  ASSERT_TRUE(listener);
  const Endpoint place{.host = "127.0.0.1", .port = port_of_socket(*listener)};
  EXPECT_EQ(connect_to(place, std::chrono::seconds(5)).obstacle, "");
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

/// Does what a store does: binds the port with SO_REUSEADDR and listens there, at `::` for both
/// families of addresses.
bool can_listen(const char* host, int port, FileDescriptor& listener, bool reuse = true) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_flags = AI_NUMERICHOST;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(host, std::to_string(port).c_str(), &hints, &found) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> place(found, &::freeaddrinfo);
  listener = FileDescriptor(::socket(place->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = reuse ? 1 : 0, off = 0;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  ::setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  return ::bind(listener.get(), place->ai_addr, place->ai_addrlen) == 0 &&
         ::listen(listener.get(), 8) == 0;
}

bool can_connect(int port) {
  return connect_to({.host = "127.0.0.1", .port = port}, std::chrono::seconds(5)).obstacle.empty();
}

TEST(ReservedPort, LetsAStoreListenOnIt) {
  const ReservedPort port;
  for (const char* host : {"127.0.0.1", "0.0.0.0"}) {
    FileDescriptor listener;
    EXPECT_TRUE(can_listen(host, port.number(), listener)) << host;
    EXPECT_TRUE(can_connect(port.number()));
  }
}

TEST(ReservedPort, LetsAStoreListenOnBothFamilies) {
  FileDescriptor listener(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener) return;  // this host has no IPv6 at all, so no store will use it
  const ReservedPort port;
  EXPECT_TRUE(can_listen("::", port.number(), listener));
  EXPECT_TRUE(can_connect(port.number()));
}

TEST(ReservedPort, IsGivenToNobodyElse) {
  const ReservedPort port;
  FileDescriptor other;
  EXPECT_FALSE(can_listen("127.0.0.1", port.number(), other, false));
  for (int i = 0; i < 200; ++i) EXPECT_NE(ReservedPort().number(), port.number());
}

TEST(ReservedPort, NamesAPortOnWhichSomebodyListens) {
  const ReservedPort free;
  FileDescriptor listener;
  ASSERT_TRUE(can_listen("0.0.0.0", free.number(), listener));
  EXPECT_THAT(testing::message_of<std::system_error>([&] { ReservedPort(free.number()); }),
      HasSubstr(concat(free.number(), ": Address already in use")));
}

TEST(ReservedPort, OnAllAddressesMayBeAnyFreeOne) {
  const ReservedPort port(0), other(0);
  EXPECT_GT(port.number(), 0);
  EXPECT_NE(port.number(), other.number());
  FileDescriptor listener;
  EXPECT_TRUE(can_listen("127.0.0.1", port.number(), listener));
}

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
}  // namespace lockstep::net
