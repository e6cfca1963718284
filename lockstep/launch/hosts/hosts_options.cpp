#include "lockstep/launch/hosts/hosts_options.h"

#include <map>

#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/launch/hosts/network.h"

namespace lockstep::launch {
namespace {

constexpr double kLeastRate = 64e3;
constexpr double kMostRate = 1000e9;

const std::map<std::string, double> kRateUnits{{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}};

bool is_name(const std::string& name) {
  // One that begins with a dash would be a flag of ssh.
  return !name.empty() && name[0] != '-' && name.find_first_of(" \t\n'\"") == std::string::npos;
}

void check_which(const HostsOptions& options) {
  const bool made = options.count != 0;
  check(made || !options.names.empty(), "hosts: give the hosts: --count N or --names A,B");
  check(!made || options.names.empty(), "hosts: --count makes hosts and --names are real ones");
  check(!made || (options.count >= 1 && options.count <= HostNetwork::kMostHosts),
      "hosts: --count must be 1 to ", HostNetwork::kMostHosts, ": ", options.count);
  for (const std::string& name : options.names) {
    check(is_name(name), "hosts: --names: not the name of a host: ", name);
  }
  check(made || (options.rate == 0 && options.cores_a_host == 0 && !options.drill),
      "hosts: --rate, --cores-a-host and --kill are for hosts that --count makes");
}

}  // namespace

Drill parse_drill(const std::string& text) {
  const auto parts = split(text, '@');
  const auto host = parse_number<int>(parts.front());
  const auto seconds = parse_number<double>(parts.back());
  check(parts.size() == 2 && host && seconds && *seconds >= 0 && *seconds <= 1e6,
      "hosts: --kill must be HOST@SECONDS, as 1@5: ", text);
  return {.host = *host, .seconds = *seconds};
}

std::int64_t parse_rate(const std::string& text) {
  const auto end = std::min(text.find_first_not_of("0123456789."), text.size());
  const auto number = parse_number<double>(text.substr(0, end));
  const auto unit = kRateUnits.find(text.substr(end));
  check(number && unit != kRateUnits.end(),
      "hosts: --rate must be a number and kbit, mbit or gbit, as 1gbit: ", text);
  const double bits = *number * unit->second;
  check(
      bits >= kLeastRate && bits <= kMostRate, "hosts: --rate must be 64kbit to 1000gbit: ", text);
  return static_cast<std::int64_t>(bits);
}

void check_options(const HostsOptions& options) {
  check_which(options);
  check(options.cores_a_host >= 0, "hosts: --cores-a-host must not be negative");
  check(options.master_port >= 1 && options.master_port <= 65535,
      "hosts: --master-port must be a port number: ", options.master_port);
  check(options.max_restarts >= 0 && options.max_restarts <= 65535 - options.master_port,
      "hosts: --max-restarts: must not be negative, and each takes the next port: ",
      options.max_restarts);
  check(!options.drill || (options.drill->host >= 0 && options.drill->host < options.count),
      "hosts: --kill: there is no such host");
  check(!options.program.empty(), "hosts: say what they do: lockstep hosts --count 2 -- PROGRAM");
}

}  // namespace lockstep::launch
