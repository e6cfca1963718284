#include "lockstep/launch/rendezvous/launch_together.h"

#include <chrono>
#include <filesystem>
#include <optional>
#include <signal.h>
#include <thread>

#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/network/route.h"
#include "lockstep/core/process.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/checksum.h"
#include "lockstep/launch/child_process.h"
#include "lockstep/launch/patience.h"
#include "lockstep/launch/rendezvous/agent.h"
#include "lockstep/launch/rendezvous/service.h"
#include "lockstep/net/endpoint.h"
#include "lockstep/net/secret.h"

namespace lockstep::launch {
namespace {

std::string nodes_text(const RendezvousOptions& meeting) {
  return meeting.least_nodes == meeting.most_nodes
             ? std::to_string(meeting.least_nodes)
             : concat(meeting.least_nodes, ":", meeting.most_nodes);
}

// A program that is read by another is its first argument: python3 train.py.
std::string digest_of_script(const LaunchOptions& options) {
  std::error_code ignored;
  if (options.arguments.empty() ||
      !std::filesystem::is_regular_file(options.arguments.front(), ignored))
    return "none";
  return sha256_of_file(options.arguments.front());
}

std::string command_of(const LaunchOptions& options) {
  std::vector<std::string> words{options.program};
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  return joined(words, " ");
}

NodeFacts facts_of(const LaunchOptions& options, bool serves) {
  const std::string program = find_program(options.program, system_variable("PATH"));
  NodeFacts facts{.host = host_name(), .workers = options.workers, .serves = serves};
  facts.run = options.rendezvous->run_here();
  facts.same = {{"the command", command_of(options)},
      {"the SHA-256 of its program", sha256_of_file(program)},
      {"the SHA-256 of its script", digest_of_script(options)},
      {"--nnodes", nodes_text(*options.rendezvous)},
      {"--max-restarts", std::to_string(options.max_restarts)},
      {"--hang-timeout", concat(options.hang_timeout.count(), " ms")}};
  const auto& more = options.rendezvous->same;
  facts.same.insert(facts.same.end(), more.begin(), more.end());
  return facts;
}

WorldRules rules_of(const LaunchOptions& options) {
  const RendezvousOptions& meeting = *options.rendezvous;
  return {.least_nodes = meeting.least_nodes,
      .most_nodes = meeting.most_nodes,
      .restarts = {.most = options.max_restarts, .lockstep_codes = options.lockstep_codes},
      .join_timeout = meeting.join_timeout,
      .last_call = meeting.last_call,
      .to_found = patience::to_found(meeting.dead_after)};
}

/// Says whether this launcher was asked to stop, and remembers how.
class StopRequest {
 public:
  explicit StopRequest(const Supervisor& supervisor) : supervisor_(supervisor) {}

  bool has_come() {
    for (const int signal : supervisor_.signals().read())
      if (signal != SIGCHLD && !signal_) signal_ = signal;
    return signal_.has_value();
  }

  std::optional<int> signal() const { return signal_; }

 private:
  const Supervisor& supervisor_;
  std::optional<int> signal_;
};

/// Listens at the endpoint if it is an address of this host. A name may get its address later than
/// we start, as in a cluster that is just made.
std::optional<FileDescriptor> listener_of(const RendezvousOptions& meeting, StopRequest& stop) {
  constexpr std::chrono::milliseconds kPause(200);
  const net::Endpoint endpoint{.host = meeting.host, .port = meeting.port};
  const auto end = std::chrono::steady_clock::now() + meeting.join_timeout;
  while (meeting.serves != false) {
    try {
      auto listener = net::listen_at(endpoint);
      check(listener || meeting.serves != true, "run: --rdzv-conf is_host=true, but ",
          endpoint.text(), " is no address of this host, or is in use; give another ",
          "--rdzv-endpoint");
      return listener;
    } catch (const CommError&) {
      if (stop.has_come() || std::chrono::steady_clock::now() >= end) throw;
    }
    std::this_thread::sleep_for(kPause);
  }
  return std::nullopt;
}

net::Key key_for(const LaunchOptions& options) {
  const RendezvousOptions& meeting = *options.rendezvous;
  const std::string secret = net::shared_secret(meeting.secret_file);
  check(!secret.empty() || meeting.insecure || names_loopback(meeting.host),
      "run: whoever reaches ", meeting.host, ":", meeting.port,
      " could join this run; give all nodes one secret, by LOCKSTEP_SECRET or "
      "--rdzv-conf secret_file=FILE, or --insecure if only you reach it");
  return net::key_of_run(secret, options.run_id);
}

int take_part(
    const LaunchOptions& options, const net::Key& key, Supervisor& supervisor, StopRequest& stop) {
  const RendezvousOptions& meeting = *options.rendezvous;
  const std::string endpoint = net::Endpoint{.host = meeting.host, .port = meeting.port}.text();
  Service service(rules_of(options), meeting.dead_after, key, options.run_id);
  if (auto listener = listener_of(meeting, stop))
    service.begin(*std::move(listener), facts_of(options, true), endpoint, {.origin = endpoint});
  const net::ClientOptions server{.endpoint = {.host = meeting.host, .port = meeting.port},
      .hello = {.job = options.run_id, .role = net::Role::kAgent},
      .key = key,
      .timeout = meeting.join_timeout,
      .gives_up = [&stop] { return stop.has_come(); }};
  const NodeFacts facts = facts_of(options, service.is_here());
  const int code = Agent(supervisor, service, options, server, facts).run();
  service.say_goodbye();
  return code;
}

}  // namespace

void check_rendezvous(const RendezvousOptions& meeting) {
  check(1 <= meeting.least_nodes && meeting.least_nodes <= meeting.most_nodes,
      "--nnodes: must be a number of nodes, or MIN:MAX with MIN from 1 to MAX: ",
      nodes_text(meeting));
  check(!meeting.host.empty(),
      "--rdzv-endpoint: nodes that find each other need one: HOST:PORT of the node that serves");
  check(meeting.beat.count() > 0 && meeting.dead_after >= 2 * meeting.beat,
      "--rdzv-conf: keep_alive_max_attempt must be at least 2, keep_alive_interval above 0");
}

int launch_together(const LaunchOptions& options) {
  check_rendezvous(*options.rendezvous);
  check_options(options);
  find_program(options.program, system_variable("PATH"));
  const net::Key key = key_for(options);
  const IgnoredPipeSignal ignored;
  Supervisor supervisor(options.signals, options.quiet);
  StopRequest stop(supervisor);
  try {
    return take_part(options, key, supervisor, stop);
  } catch (const CommError&) {
    if (!stop.signal()) throw;
    return 128 + *stop.signal();
  }
}

}  // namespace lockstep::launch
