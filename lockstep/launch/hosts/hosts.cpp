#include "lockstep/launch/hosts/hosts.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <optional>
#include <sstream>
#include <system_error>
#include <unistd.h>

#include "lockstep/core/cpu_share.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/process.h"
#include "lockstep/core/text.h"
#include "lockstep/launch/attempt.h"
#include "lockstep/launch/hosts/made_hosts.h"
#include "lockstep/launch/patience.h"
#include "lockstep/launch/ranks/worker_environment.h"

namespace lockstep::launch {
namespace {

constexpr double kLeastRate = 64e3;
constexpr double kMostRate = 1000e9;

const std::map<std::string, double> kRateUnits{{"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}};

bool is_name(const std::string& name) {
  // One that begins with a dash would be a flag of ssh.
  return !name.empty() && name[0] != '-' && name.find_first_of(" \t\n'\"") == std::string::npos;
}

std::string this_program() { return own_program("hosts"); }

std::string search_path() { return system_variable("PATH"); }

std::vector<std::string> command_of(const HostsOptions& options) {
  std::vector<std::string> command{
      options.program == "lockstep" ? this_program() : options.program};
  command.insert(command.end(), options.arguments.begin(), options.arguments.end());
  return command;
}

std::string name_of(const std::string& variable) { return variable.substr(0, variable.find('=')); }

/// Lets what a command starts find this very program by its bare name, too.
std::string path_with_ours() {
  const std::string folder = std::filesystem::path(this_program()).parent_path().string();
  return concat("PATH=", search_path(), search_path().empty() ? "" : ":", folder);
}

std::vector<std::string> environment_with(std::vector<std::string> variables) {
  variables.push_back(path_with_ours());
  std::vector<std::string> all = current_environment();
  for (const std::string& variable : variables) {
    std::erase_if(all, [&](const auto& each) { return name_of(each) == name_of(variable); });
    all.push_back(variable);
  }
  return all;
}

// That many each, in turn; with more hosts than cores they begin again at the first core.
std::vector<int> cores_of(const HostsOptions& options, int host) {
  const std::vector<int> all = available_cpus();
  if (options.cores_a_host == 0) return cpu_share(all, host, options.size());
  std::vector<int> cores;
  const auto count = static_cast<std::size_t>(options.cores_a_host);
  for (std::size_t i = 0; i < std::min(count, all.size()); ++i) {
    cores.push_back(all[(static_cast<std::size_t>(host) * count + i) % all.size()]);
  }
  return cores;
}

ChildProcess start_here(const HostsOptions& options, const AttemptPlan& plan,
    const HostNetwork& network, const Guardian& guardian, int host) {
  std::vector<std::string> arguments{"hosts", "--inside", concat("host-", host)};
  const std::vector<std::string> command = command_of(options);
  arguments.insert(arguments.end(), command.begin(), command.end());
  const ChildOptions child{.program = this_program(),
      .arguments = std::move(arguments),
      .environment = environment_with(host_variables(options, plan, host)),
      .cpus = cores_of(options, host),
      .guardian = &guardian};
  const HostNetwork::Visit visit(network, host);
  return ChildProcess(child);
}

/// Gives the command its variables by the standard input, which it finds open until we end.
void start_there(
    const HostsOptions& options, const AttemptPlan& plan, const Guardian& guardian, Worker& host) {
  std::istringstream by(options.by);
  std::vector<std::string> words;
  for (std::string word; by >> word;) words.push_back(word);
  check(!words.empty(), "hosts: --by must name a program, as ssh");
  std::vector<std::string> variables = travelling_variables(current_environment());
  const auto own = host_variables(options, plan, host.number);
  variables.insert(variables.end(), own.begin(), own.end());
  words.push_back(options.names[static_cast<std::size_t>(host.number)]);
  const auto grace =
      std::chrono::ceil<std::chrono::seconds>(patience::for_a_launcher(options.grace_period));
  words.push_back(
      remote_line(std::filesystem::current_path().string(), command_of(options), grace));
  Pipe pipe = make_pipe();
  const std::string lines = variable_lines(variables);
  const auto size = static_cast<ssize_t>(lines.size());
  const auto is_room = ::fcntl(pipe.writer.get(), F_GETPIPE_SZ) >= size ||
                       ::fcntl(pipe.writer.get(), F_SETPIPE_SZ, lines.size()) >= size;
  if (!is_room || ::write(pipe.writer.get(), lines.data(), lines.size()) != size)
    throw_errno("hosts: pass on the variables that begin with OMP_, PET_, NCCL_ or GLOO_");
  host.input = std::move(pipe.writer);
  host.process.emplace(ChildOptions{.program = find_program(words.front(), search_path()),
      .arguments = {words.begin() + 1, words.end()},
      .environment = current_environment(),
      .cpus = {},
      .input = pipe.reader.get(),
      .guardian = &guardian});
}

// What host 0 writes to its standard output are the run's results, and go to ours unchanged.
WorkerOutput output_of(int host, int hosts) {
  const std::string prefix = hosts > 1 ? concat("[host ", host, "] ") : "";
  const Route output{.shown = true, .file = "", .prefix = host == 0 ? "" : prefix};
  const Route errors{.shown = true, .file = "", .prefix = prefix};
  return {output, errors};
}

std::string master_address(const HostsOptions& options) {
  if (options.count > 0) return HostNetwork::address(0);
  const std::string& name = options.names.front();
  return name.substr(name.find('@') + 1);
}

using Moment = std::optional<std::chrono::steady_clock::time_point>;

std::optional<HostNetwork> network_of(const HostsOptions& options) {
  if (options.count == 0) return std::nullopt;
  const std::string& missing = hosts_missing();
  if (!missing.empty()) {
    throw std::system_error(EPERM, std::generic_category(), concat("hosts: ", missing));
  }
  return HostNetwork({.hosts = options.count, .rate = options.rate});
}

Moment moment_of(const std::optional<Drill>& drill) {
  using Clock = std::chrono::steady_clock;
  if (!drill) return std::nullopt;
  const std::chrono::duration<double> seconds(drill->seconds);
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(seconds);
}

EndingRules ending_rules_for_hosts(const HostsOptions& options) {
  const bool are_launchers = options.program == "lockstep";
  return {.members = "hosts' commands",
      .grace_period = options.grace_period,
      // Commands that lose a peer end by themselves, and say why; launchers of ranks that save what
      // would be lost do that first, as well when they are asked to end.
      .for_own_end = patience::kToNotice + patience::kForTheCause,
      .after_failure =
          are_launchers ? patience::for_a_launcher(options.grace_period) : options.grace_period,
      .may_stop = true};
}

/// One attempt of the commands on all hosts.
class HostsAttempt : public Attempt {
 public:
  /// `strike` is when the drill's host is killed; it is reset when that is done.
  HostsAttempt(Supervisor& supervisor, const HostsOptions& options, const AttemptPlan& plan,
      const std::optional<HostNetwork>& network, Moment& strike)
      : Attempt(supervisor, ending_rules_for_hosts(options)), options_(options), strike_(strike) {
    take(start_hosts(options, plan, network ? &*network : nullptr, guardian()));
  }

 private:
  void on_first_failure(const Worker&) override {}

  std::string describe(const Worker& cause) override {
    return concat("host ", cause.number, " ", cause.status->text(), "\n");
  }

  std::optional<std::int64_t> furthest_step() const override { return std::nullopt; }

  Moment on_wake() override {
    if (strike_ && Clock::now() >= *strike_) {
      strike_.reset();
      strike(workers()[static_cast<std::size_t>(options_.drill->host)]);
    }
    return strike_;
  }

  void strike(const Worker& host) {
    if (host.status) return;
    say(concat("killing host ", host.number, ", as --kill asks"));
    host.process->signal_group(kPowerFailure);
  }

  const HostsOptions& options_;
  Moment& strike_;
};

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
  const bool made = options.count != 0;
  check(made || !options.names.empty(), "hosts: give the hosts: --count N or --names A,B");
  check(!made || options.names.empty(), "hosts: --count makes hosts and --names are real ones");
  check(!made || (options.count >= 1 && options.count <= HostNetwork::kMostHosts),
      "hosts: --count must be 1 to ", HostNetwork::kMostHosts, ": ", options.count);
  for (const std::string& name : options.names)
    check(is_name(name), "hosts: --names: not the name of a host: ", name);
  check(made || (options.rate == 0 && options.cores_a_host == 0 && !options.drill),
      "hosts: --rate, --cores-a-host and --kill are for hosts that --count makes");
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

std::string shell_words(const std::vector<std::string>& words) {
  std::vector<std::string> quoted;
  for (const std::string& word : words) {
    std::string inner;
    for (const char letter : word) inner += letter == '\'' ? "'\\''" : std::string(1, letter);
    quoted.push_back(concat("'", inner, "'"));
  }
  return joined(quoted, " ");
}

std::string remote_line(const std::string& folder, const std::vector<std::string>& command,
    std::chrono::seconds grace) {
  const std::string script =
      concat(R"(while IFS= read -r line && [ -n "$line" ]; do export "$line"; done)", "\n", "cd ",
          shell_words({folder}), " || exit 4\n", "exec 3<&0\n", shell_words(command),
          " 3<&- </dev/null &\n", "child=$!\n", "{ cat <&3; kill -TERM $child; sleep ",
          grace.count(), "; kill -KILL $child; } >/dev/null 2>&1 &\n", "watch=$!\n",
          "wait $child\n", "code=$?\n", "kill $watch\n", "exit $code\n");
  // The user's own shell there may be of any kind.
  return shell_words({"sh", "-c", script});
}

std::string variable_lines(const std::vector<std::string>& variables) {
  std::string lines;
  for (const std::string& variable : variables) {
    check(variable.find('\n') == std::string::npos, "hosts: the variable ", name_of(variable),
        " has several lines, which cannot be passed on to another host; unset it");
    lines += variable + "\n";
  }
  return lines + "\n";
}

// Of ours only what a user sets: the others are of this process and its host.
std::vector<std::string> travelling_variables(const std::vector<std::string>& ours) {
  std::vector<std::string> result;
  for (const std::string& variable : ours) {
    bool travels =
        variable.starts_with("LOCKSTEP_SECRET=") || variable.starts_with("LOCKSTEP_SIMD=");
    for (const char* start : {"OMP_", "PET_", "NCCL_", "GLOO_"})
      travels = travels || variable.starts_with(start);
    if (travels) result.push_back(variable);
  }
  return result;
}

std::vector<std::string> host_variables(
    const HostsOptions& options, const AttemptPlan& plan, int host) {
  std::vector<std::string> variables{concat("PET_NNODES=", options.size()),
      concat("PET_NODE_RANK=", host), concat("PET_MASTER_ADDR=", master_address(options)),
      // Another with each attempt, so that no process of an earlier one is met.
      concat("PET_MASTER_PORT=", options.master_port + plan.restart),
      concat("TORCHELASTIC_RESTART_COUNT=", plan.restart)};
  if (options.count == 0) return variables;
  variables.push_back(concat("GLOO_SOCKET_IFNAME=", HostNetwork::kInterface));
  // Made hosts have one clock.
  if (plan.death_ns > 0) variables.push_back(concat("LOCKSTEP_DEATH_NS=", plan.death_ns));
  return variables;
}

std::vector<Worker> start_hosts(const HostsOptions& options, const AttemptPlan& plan,
    const HostNetwork* network, const Guardian& guardian) {
  std::vector<Worker> hosts;
  for (int host = 0; host < options.size(); ++host) {
    hosts.push_back({.number = host, .output = output_of(host, options.size())});
  }
  for (Worker& each : hosts) {
    if (network != nullptr)
      each.process.emplace(start_here(options, plan, *network, guardian, each.number));
    else
      start_there(options, plan, guardian, each);
    each.output.connect(each.process->take_output(), each.process->take_errors());
  }
  return hosts;
}

int run_hosts(const HostsOptions& options) {
  check_options(options);
  Supervisor supervisor({SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1}, options.quiet);
  const auto network = network_of(options);
  Moment strike = moment_of(options.drill);
  // Codes of ours say whether a restart may help.
  const RestartRules rules{
      .most = options.max_restarts, .lockstep_codes = options.program == "lockstep"};
  return supervisor.run(rules, 0, [&](const AttemptPlan& plan) {
    return HostsAttempt(supervisor, options, plan, network, strike).run();
  });
}

}  // namespace lockstep::launch
