#include "lockstep/launch/hosts/network.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/launch/child_process.h"
#include "lockstep/launch/ranks/worker_environment.h"

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

namespace {

[[noreturn]] void fail(const std::vector<std::string>& command, const std::string& reason) {
  throw std::system_error(std::make_error_code(std::errc::operation_not_supported),
      concat("hosts: ", joined(command, " "), ": ", reason));
}

/// Reads what there is, and keeps the beginning.
void read_some(FileDescriptor& pipe, std::string& beginning) {
  constexpr std::size_t kKept = 1024;
  char bytes[1 << 16];
  const ssize_t size = retried([&] { return ::read(pipe.get(), bytes, sizeof(bytes)); });
  if (size == 0) pipe.reset();
  if (size <= 0) return;
  const auto room = kKept - std::min(kKept, beginning.size());
  beginning.append(bytes, std::min(room, static_cast<std::size_t>(size)));
}

/// Waits for a tool's end, and returns with it what it said first. It would not come to its end if
/// nobody read what it writes.
std::pair<ExitStatus, std::string> end_of(ChildProcess& child) {
  FileDescriptor output = child.take_output(), errors = child.take_errors();
  std::string unused, said;
  while (true) {
    const auto status = child.status();
    read_some(output, unused);
    read_some(errors, said);
    if (status) return {*status, said.substr(0, said.find('\n'))};
    pollfd waited[] = {
        {child.descriptor(), POLLIN, 0}, {output.get(), POLLIN, 0}, {errors.get(), POLLIN, 0}};
    ::poll(waited, 3, -1);
  }
}

}  // namespace

std::string find_tool(const std::string& name) {
  const std::string folders = system_variable("PATH") + ":/usr/sbin:/sbin:/usr/bin:/bin";
  for (const std::string& folder : split(folders, ':')) {
    const std::string path = concat(folder, "/", name);
    if (!folder.empty() && ::access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

void run_tool(const std::vector<std::string>& command) {
  const std::string path = find_tool(command.front());
  if (path.empty()) fail(command, concat("there is no program ", command.front()));
  ChildProcess child({.program = path,
      .arguments = {command.begin() + 1, command.end()},
      .environment = current_environment(),
      .cpus = {}});
  const auto [status, said] = end_of(child);
  if (status.succeeded()) return;
  fail(command, said.empty() ? status.text() : said);
}

}  // namespace lockstep::launch
