#include "lockstep/cluster/route.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <memory>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <set>
#include <sys/socket.h>

#include "lockstep/core/error.h"
#include "lockstep/core/file_descriptor.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

constexpr const char* kOutside[] = {"192.0.2.1", "2001:db8::1"};  // of nobody: for documentation

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

AddressList resolve(const std::string& host, int flags = 0) {
  addrinfo hints{};
  hints.ai_flags = flags;
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

// Calls with each address of each interface, and once more with each interface.
template <typename Visit>
void for_each_interface(Visit visit) {
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(found, &::freeifaddrs);
  for (const ifaddrs* each = found; each != nullptr; each = each->ifa_next) visit(*each);
}

bool has(const ifaddrs& interface, unsigned flag) { return (interface.ifa_flags & flag) != 0; }

int family_of(const ifaddrs& interface) {
  return interface.ifa_addr == nullptr ? AF_UNSPEC : interface.ifa_addr->sa_family;
}

std::string address_of_first_interface() {
  std::string address;
  for_each_interface([&](const ifaddrs& each) {
    const bool fits = has(each, IFF_UP) && !has(each, IFF_LOOPBACK) && family_of(each) == AF_INET;
    if (address.empty() && fits) address = numeric(each.ifa_addr, sizeof(sockaddr_in));
  });
  return address;
}

// Where nothing is known of interfaces, as in a sandbox, it is up.
bool loopback_is_down() {
  bool is_known = false, is_up = false;
  for_each_interface([&](const ifaddrs& each) {
    is_known |= has(each, IFF_LOOPBACK);
    is_up |= has(each, IFF_LOOPBACK) && has(each, IFF_UP);
  });
  return is_known && !is_up;
}

}  // namespace

bool names_loopback(const std::string& host) {
  const AddressList address = resolve(host, AI_NUMERICHOST);
  return host == "localhost" || (address && is_loopback(address->ai_addr));
}

void check_loopback(const std::string& what, const std::string& host) {
  check(!names_loopback(host) || !loopback_is_down(), what, ": ", host,
      " cannot be reached: the loopback interface of this host is down; ip link set lo up");
}

std::string obstacle_of_interface(const std::string& name) {
  std::set<std::string> usable;
  for_each_interface([&](const ifaddrs& each) {
    const int family = family_of(each);
    if (has(each, IFF_UP) && (family == AF_INET || family == AF_INET6))
      usable.insert(each.ifa_name);
  });
  if (usable.contains(name)) return "";
  const bool exists = ::if_nametoindex(name.c_str()) != 0;
  return concat(exists ? "is down, or has no address" : "is no network interface of this host",
      "; it can use ", joined({usable.begin(), usable.end()}));
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
