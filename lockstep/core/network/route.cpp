#include "lockstep/core/network/route.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "lockstep/core/file_descriptor.h"

namespace lockstep {
namespace {

constexpr const char* kOutside[] = {"192.0.2.1", "2001:db8::1"};  // of nobody: for documentation

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

AddressList resolve(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), "9", &hints, &found);
  return {error == 0 ? found : nullptr, &::freeaddrinfo};
}

std::string numeric(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST] = {};
  return ::getnameinfo(address, size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0 ? text
                                                                                           : "";
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* ipv4 = reinterpret_cast<const sockaddr_in*>(address);
    return ntohl(ipv4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  }
  if (address->sa_family != AF_INET6) return false;
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

// To connect a datagram socket only chooses a route.
std::string source_towards(const addrinfo& address) {
  const FileDescriptor socket(::socket(address.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket || ::connect(socket.get(), address.ai_addr, address.ai_addrlen) != 0) return "";
  sockaddr_storage source{};
  socklen_t size = sizeof(source);
  auto* place = reinterpret_cast<sockaddr*>(&source);
  return ::getsockname(socket.get(), place, &size) == 0 ? numeric(place, size) : "";
}

bool is_of_a_network(const ifaddrs& interface) {
  const bool runs =
      (interface.ifa_flags & IFF_UP) != 0 && (interface.ifa_flags & IFF_LOOPBACK) == 0;
  return runs && interface.ifa_addr != nullptr && interface.ifa_addr->sa_family == AF_INET;
}

std::string address_of_first_interface() {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(found, &::freeifaddrs);
  for (const ifaddrs* each = found; each != nullptr; each = each->ifa_next)
    if (is_of_a_network(*each)) return numeric(each->ifa_addr, sizeof(sockaddr_in));
  return "";
}

}  // namespace

bool names_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

std::string address_towards(const std::string& host) {
  const AddressList addresses = resolve(host);
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
    const std::string source = source_towards(*each);
    if (!source.empty()) return source;
  }
  return "";
}

std::string address_outwards() {
  for (const char* outside : kOutside) {
    const std::string source = address_towards(outside);
    if (!source.empty()) return source;
  }
  return address_of_first_interface();
}

std::string reachable_name(const std::string& host) {
  if (names_loopback(host)) return host;
  const AddressList addresses = resolve(host);
  if (!addresses) return host;
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next)
    if (!is_loopback(each->ai_addr)) return host;
  const std::string own = address_outwards();
  return own.empty() ? host : own;
}

}  // namespace lockstep
