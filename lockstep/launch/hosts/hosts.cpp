#include <cerrno>
#include <optional>
#include <system_error>

#include "lockstep/core/error.h"
#include "lockstep/launch/attempt.h"
#include "lockstep/launch/hosts/host_process.h"
#include "lockstep/launch/hosts/hosts_options.h"
#include "lockstep/launch/hosts/inside.h"
#include "lockstep/launch/patience.h"

namespace lockstep::launch {
namespace {

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
