#include "lockstep/launch/hosts/hosts_options.h"

#include <charconv>

#include "lockstep/core/error.h"
#include "lockstep/launch/hosts/network.h"

namespace lockstep::launch {
namespace {

bool is_name(const std::string& name) {
  // One that begins with a dash would be a flag of ssh.
  return !name.empty() && name[0] != '-' && name.find_first_of(" \t\n'\"") == std::string::npos;
}

void check_which(const HostsOptions& options) {
  const bool made = options.count != 0;
  check(made || !options.names.empty(), "hosts: say how many: --count N, or which: --names A,B");
  check(!made || options.names.empty(), "hosts: --count makes hosts and --names are real ones");
  check(
      !made || (options.count >= 1 && options.count <= HostNetwork::kMostHosts),
      "hosts: --count must be 1 to ", HostNetwork::kMostHosts, ": ", options.count);
  for (const std::string& name : options.names) {
    check(is_name(name), "hosts: --names: is no host's name: ", name);
  }
  check(
      made || (options.rate == 0 && options.cores_a_host == 0 && !options.drill),
      "hosts: --rate, --cores-a-host and --kill are for hosts that --count makes");
}

}  // namespace

Drill parse_drill(const std::string& text) {
  Drill drill;
  const char* const end = text.data() + text.size();
  const auto host = std::from_chars(text.data(), end, drill.host);
  const bool split = host.ec == std::errc() && host.ptr != end && *host.ptr == '@';
  const auto seconds = split ? std::from_chars(host.ptr + 1, end, drill.seconds) : host;
  check(
      split && seconds.ec == std::errc() && seconds.ptr == end && drill.seconds >= 0 &&
          drill.seconds <= 1e6,
      "hosts: --kill must be HOST@SECONDS, as 1@5: ", text);
  return drill;
}

void check_options(const HostsOptions& options) {
  check_which(options);
  check(options.cores_a_host >= 0, "hosts: --cores-a-host must not be negative");
  check(
      options.master_port >= 1 && options.master_port <= 65535,
      "hosts: --master-port must be a port number: ", options.master_port);
  check(
      options.max_restarts >= 0 && options.max_restarts <= 65535 - options.master_port,
      "hosts: --max-restarts: must not be negative, and each takes the next port: ",
      options.max_restarts);
  check(
      !options.drill || (options.drill->host >= 0 && options.drill->host < options.count),
      "hosts: --kill: there is no such host");
  check(!options.program.empty(), "hosts: say what they do: lockstep hosts --count 2 -- PROGRAM");
}

}  // namespace lockstep::launch
