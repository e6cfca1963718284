#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <system_error>

#include "lockstep/net/endpoint.h"

namespace lockstep::launch {
namespace {

/// Does what a store does: binds the port with SO_REUSEADDR and listens there.
bool can_listen(int port, in_addr_t address, FileDescriptor& listener, bool reuse = true) {
  listener = FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = reuse ? 1 : 0;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(address);
  place.sin_port = htons(static_cast<in_port_t>(port));
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&place), sizeof(place)) != 0) return false;
  return ::listen(listener.get(), 8) == 0;
}

bool can_listen_on_both_families(int port, FileDescriptor& listener) {
  listener = FileDescriptor(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  const int off = 0;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  ::setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  sockaddr_in6 place{};
  place.sin6_family = AF_INET6;
  place.sin6_port = htons(static_cast<in_port_t>(port));
  if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&place), sizeof(place)) != 0) return false;
  return ::listen(listener.get(), 8) == 0;
}

bool can_connect(int port) {
  FileDescriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  place.sin_port = htons(static_cast<in_port_t>(port));
  return ::connect(client.get(), reinterpret_cast<sockaddr*>(&place), sizeof(place)) == 0;
}

TEST(ReservedPort, LetsAStoreListenOnIt) {
  const net::ReservedPort port;
  for (const in_addr_t address : {INADDR_LOOPBACK, INADDR_ANY}) {
    FileDescriptor listener;
    EXPECT_TRUE(can_listen(port.number(), address, listener)) << address;
    EXPECT_TRUE(can_connect(port.number()));
  }
}

TEST(ReservedPort, LetsAStoreListenOnBothFamilies) {
  FileDescriptor listener(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener) return;  // this host has no IPv6 at all, so no store will use it
  const net::ReservedPort port;
  EXPECT_TRUE(can_listen_on_both_families(port.number(), listener));
  EXPECT_TRUE(can_connect(port.number()));
}

TEST(ReservedPort, IsGivenToNobodyElse) {
  const net::ReservedPort port;
  FileDescriptor stranger;
  EXPECT_FALSE(can_listen(port.number(), INADDR_LOOPBACK, stranger, false));
  for (int i = 0; i < 200; ++i) EXPECT_NE(net::ReservedPort().number(), port.number());
}

TEST(ReservedPort, NamesAPortOnWhichSomebodyListens) {
  const net::ReservedPort free;
  FileDescriptor listener;
  ASSERT_TRUE(can_listen(free.number(), INADDR_ANY, listener));
  try {
    net::ReservedPort taken(free.number());
    FAIL() << "the port was taken twice";
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code().value(), EADDRINUSE);
    EXPECT_NE(std::string(error.what()).find(std::to_string(free.number())), std::string::npos);
  }
}

TEST(ReservedPort, OnAllAddressesMayBeAnyFreeOne) {
  const net::ReservedPort port(0), other(0);
  EXPECT_GT(port.number(), 0);
  EXPECT_NE(port.number(), other.number());
  FileDescriptor listener;
  EXPECT_TRUE(can_listen(port.number(), INADDR_LOOPBACK, listener));
}

}  // namespace
}  // namespace lockstep::launch
