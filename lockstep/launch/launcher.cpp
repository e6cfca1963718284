#include "lockstep/core/environment.h"
#include "lockstep/launch/launch_options.h"
#include "lockstep/launch/port.h"
#include "lockstep/launch/ranks/rank_attempt.h"

namespace lockstep::launch {
namespace {

/// The port on which rank 0 is to listen.
class MasterPort {
 public:
  explicit MasterPort(const LaunchOptions& options) : given_(options.master_port) {
    if (options.node_rank != 0) return;
    port_ = given_ == 0 ? ReservedPort() : ReservedPort(given_);
  }

  int number() const { return port_ ? port_->number() : given_; }

  /// Takes another one, unless it was given: there a new group cannot meet a process of the old
  /// one.
  void renew() {
    if (!port_ || given_ != 0) return;
    ReservedPort fresh;  // while the old one is still held, so that it is another
    port_ = std::move(fresh);
  }

 private:
  int given_;
  std::optional<ReservedPort> port_;
};

}  // namespace

int launch(const LaunchOptions& options) {
  check_options(options);
  find_program(options.program, system_variable("PATH"));
  Supervisor supervisor(options.signals, options.quiet);
  MasterPort port(options);
  const RestartRules rules{.most = options.max_restarts, .lockstep_codes = options.lockstep_codes};
  return supervisor.run(rules, options.death_ns, [&](const AttemptPlan& plan) {
    if (plan.restart > 0) port.renew();
    return run_ranks_once(supervisor, options, plan, port.number(), nullptr);
  });
}

}  // namespace lockstep::launch
