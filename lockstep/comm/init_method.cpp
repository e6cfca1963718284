#include "lockstep/comm/init_method.h"

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

constexpr const char* kWhat = "init_process_group: the init method ";

InitMethod tcp_method(const std::string& url, const std::string& rest) {
  const auto colon = rest.rfind(':');
  check(colon != std::string::npos && colon > 0, kWhat, url,
      " needs an address and a port: tcp://HOST:PORT");
  std::string host = rest.substr(0, colon);
  const bool bracketed = host.front() == '[' && host.back() == ']';
  check(bracketed || host.find(':') == std::string::npos, kWhat, url,
      " has an IPv6 address, which needs brackets: tcp://[::1]:29500");
  if (bracketed) host = host.substr(1, host.size() - 2);
  const int port = parse_number<int>(rest.substr(colon + 1)).value_or(0);
  check(0 < port && port < 65536, kWhat, url,
      " has no port between 1 and 65535: ", rest.substr(colon + 1));
  return {.kind = InitMethod::Kind::kTcp, .host = host, .port = port};
}

InitMethod file_method(const std::string& url, const std::string& path) {
  check(!path.empty() && path.front() == '/', kWhat, url,
      " needs an absolute path after two slashes, so three in all: file:///tmp/meeting");
  check(path.back() != '/', kWhat, url, " names a folder; the ranks meet in a file");
  return {.kind = InitMethod::Kind::kFile, .path = path};
}

}  // namespace

InitMethod parse_init_method(const std::string& url) {
  if (url.empty() || url == "env://") return {};
  check(url.find('?') == std::string::npos, kWhat, url,
      " has a question mark; give rank and world size as InitOptions, or by RANK and WORLD_SIZE");
  if (url.starts_with("tcp://")) return tcp_method(url, url.substr(6));
  if (url.starts_with("file://")) return file_method(url, url.substr(7));
  throw InvalidArgument(
      concat(kWhat, "must be env://, tcp://HOST:PORT or file:///PATH, not ", url));
}

}  // namespace lockstep
