#include "lockstep/launch/hosts/network.h"

#include <algorithm>
#include <cstdlib>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include "lockstep/core/error.h"

namespace lockstep::launch {
namespace {

FileDescriptor current_network() {
  FileDescriptor network(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!network) throw_errno("hosts: open the network namespace");
  return network;
}

void enter_new_network() {
  if (::unshare(CLONE_NEWNET) != 0) throw_errno("hosts: make a network namespace");
}

void enter(int network) {
  if (::setns(network, CLONE_NEWNET) != 0) throw_errno("hosts: enter a network namespace");
}

/// Puts the thread back when making a network fails half way, too.
class Return {
 public:
  explicit Return(int home) : home_(home) {}
  Return(const Return&) = delete;
  Return& operator=(const Return&) = delete;
  ~Return() {
    // In a foreign network nothing that follows could be trusted.
    if (::setns(home_, CLONE_NEWNET) != 0) std::abort();
  }

 private:
  int home_;
};

// What waits in the bucket longer than this is dropped, as a switch would.
void limit(const std::string& interface, std::int64_t rate) {
  if (rate == 0) return;
  run_tool({"tc", "qdisc", "add", "dev", interface, "root", "tbf", "rate", concat(rate, "bit"),
      "burst", std::to_string(burst_bytes(rate)), "latency", "20ms"});
}

}  // namespace

HostNetwork::HostNetwork(const NetworkOptions& options) : home_(current_network()) {
  check(options.hosts >= 1 && options.hosts <= kMostHosts, "hosts: --count must be 1 to ",
      kMostHosts, ": ", options.hosts);
  enter_new_network();
  const Return home(home_.get());
  bridge_ = current_network();
  run_tool({"ip", "link", "add", "bridge", "type", "bridge"});
  run_tool({"ip", "link", "set", "bridge", "up"});
  for (int host = 0; host < options.hosts; ++host) add_host(host, options.rate);
}

// Called in the bridge's namespace. Limited at both ends: what the host sends at its own, what it
// receives at the bridge's.
void HostNetwork::add_host(int host, std::int64_t rate) {
  enter_new_network();
  hosts_.push_back(current_network());
  run_tool({"ip", "link", "set", "lo", "up"});
  enter(bridge_.get());
  const std::string port = concat("port", host);
  const std::string space = concat("/proc/", ::getpid(), "/fd/", hosts_.back().get());
  run_tool({"ip", "link", "add", port, "type", "veth", "peer", "name", kInterface, "netns", space});
  run_tool({"ip", "link", "set", port, "master", "bridge", "up"});
  limit(port, rate);
  enter(hosts_.back().get());
  run_tool({"ip", "address", "add", address(host) + "/24", "dev", kInterface});
  run_tool({"ip", "link", "set", kInterface, "up"});
  limit(kInterface, rate);
  enter(bridge_.get());
}

std::string HostNetwork::address(int host) { return concat("10.77.77.", host + 1); }

HostNetwork::Visit::Visit(const HostNetwork& network, int host) : home_(network.home_.get()) {
  enter(network.hosts_.at(static_cast<std::size_t>(host)).get());
}

HostNetwork::Visit::~Visit() {
  if (::setns(home_, CLONE_NEWNET) != 0) std::abort();
}

std::int64_t burst_bytes(std::int64_t bits_per_second) {
  constexpr std::int64_t kLeastBurst = 16 * 1024;  // some packets of the usual size
  return std::max(kLeastBurst, bits_per_second / 8 / 500);
}

}  // namespace lockstep::launch
