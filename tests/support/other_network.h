#pragma once

// Stands in for libc's functions that know names and interfaces; included in one source of a
// program.

#include <arpa/inet.h>
#include <dlfcn.h>
#include <ifaddrs.h>
#include <map>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string>
#include <vector>

namespace lockstep::testing {

/// A network that this host seems to have while a test runs.
struct OtherNetwork {
  std::map<std::string, std::vector<std::string>> names = {};  ///< and their addresses
  bool loopback_is_down = false;
  std::string own_address = "";  ///< outwards, where this host has no way to others
};

inline OtherNetwork& other_network() {
  static OtherNetwork network;
  return network;
}

}  // namespace lockstep::testing

extern "C" int getaddrinfo(
    const char* name, const char* service, const addrinfo* hints, addrinfo** result) {
  static const auto kOfLibc =
      reinterpret_cast<decltype(&getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  const auto& names = lockstep::testing::other_network().names;
  const auto found = names.find(name);
  const bool is_number = hints != nullptr && (hints->ai_flags & AI_NUMERICHOST) != 0;
  if (found == names.end() || is_number) return kOfLibc(name, service, hints, result);
  for (const std::string& address : found->second) {
    if (const int error = kOfLibc(address.c_str(), service, hints, result)) return error;
    while (*result != nullptr) result = &(*result)->ai_next;
  }
  return 0;
}

extern "C" int getifaddrs(ifaddrs** result) {
  static const auto kOfLibc =
      reinterpret_cast<decltype(&getifaddrs)>(::dlsym(RTLD_NEXT, "getifaddrs"));
  const int error = kOfLibc(result);
  const auto& network = lockstep::testing::other_network();
  for (ifaddrs* each = error == 0 ? *result : nullptr; each != nullptr; each = each->ifa_next) {
    if ((each->ifa_flags & IFF_LOOPBACK) == 0) continue;
    if (network.loopback_is_down) each->ifa_flags &= ~static_cast<unsigned>(IFF_UP);
    if (network.own_address.empty() || each->ifa_addr->sa_family != AF_INET) continue;
    each->ifa_flags &= ~static_cast<unsigned>(IFF_LOOPBACK);
    ::inet_pton(AF_INET, network.own_address.c_str(),
        &reinterpret_cast<sockaddr_in*>(each->ifa_addr)->sin_addr);
  }
  return error;
}
