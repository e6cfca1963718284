#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/cli/env/host_facts.h"
#include "lockstep/cli/run/cluster_node.h"
#include "lockstep/cli/run/run_request.h"
#include "lockstep/cli/sibling_program.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"
#include "lockstep/formats/checksum.h"
#include "lockstep/launch/launch_options.h"
#include "lockstep/net/endpoint.h"

namespace lockstep::cli {
namespace {

constexpr int kUsualPort = 29500, kUsualMeetingPort = 29400;  // torchrun's
constexpr const char* kLoopback = "127.0.0.1";
constexpr double kMostPort = 65535, kMostSeconds = 1e6;

using Options = launch::LaunchOptions;
using Meeting = launch::RendezvousOptions;

int node_number(const std::string& flag, const std::string& text) {
  const auto number = parse_number<int>(text);
  check(number.has_value(), "run: ", flag, " must be a whole number: ", text);
  return *number;
}

std::chrono::milliseconds seconds_in(const std::string& name, const std::string& text) {
  const auto seconds = parse_number<double>(text);
  check(seconds && *seconds >= 0 && *seconds <= kMostSeconds, "run: --rdzv-conf: ", name,
      " must be a number of seconds: ", text);
  return std::chrono::milliseconds(static_cast<long>(*seconds * 1000));
}

bool truth_in(const std::string& name, const std::string& text) {
  const bool is_true = text == "true" || text == "True" || text == "1";
  const bool is_false = text == "false" || text == "False" || text == "0";
  check(is_true || is_false, "run: --rdzv-conf: ", name, " must be true or false: ", text);
  return is_true;
}

/// A setting of --rdzv-conf, and what it does with its name and text.
using Setting = std::function<void(Meeting&, const std::string&, const std::string&)>;

template <auto Member>
Setting seconds_setting() {
  return [](Meeting& meeting, const std::string& name, const std::string& text) {
    meeting.*Member = seconds_in(name, text);
  };
}

const std::map<std::string, Setting>& settings() {
  const Setting unused = [](Meeting&, const std::string&, const std::string&) {};
  static const std::map<std::string, Setting> kSettings{
      {"timeout", seconds_setting<&Meeting::join_timeout>()},
      {"join_timeout", seconds_setting<&Meeting::join_timeout>()},
      {"last_call_timeout", seconds_setting<&Meeting::last_call>()},
      {"keep_alive_interval",
          [](Meeting& meeting, const std::string& name, const std::string& text) {
            const auto beats = meeting.dead_after / meeting.beat;  // that may be missed
            meeting.beat = seconds_in(name, text);
            check(meeting.beat.count() > 0, "run: --rdzv-conf: ", name, " must be above 0: ", text);
            meeting.dead_after = beats * meeting.beat;
          }},
      {"keep_alive_max_attempt",
          [](Meeting& meeting, const std::string& name, const std::string& text) {
            meeting.dead_after = node_number("--rdzv-conf: " + name, text) * meeting.beat;
          }},
      {"is_host", [](Meeting& meeting, const std::string& name,
                      const std::string& text) { meeting.serves = truth_in(name, text); }},
      {"secret_file", [](Meeting& meeting, const std::string&,
                          const std::string& text) { meeting.secret_file = text; }},
      {"close_timeout", unused}, {"read_timeout", unused}, {"rank", unused}};
  return kSettings;
}

void read_settings(RunRequest& request, const FlagSpec&, const std::string& text) {
  std::vector<std::string> names;
  for (const auto& [name, ignored] : settings()) names.push_back(name);
  for (const std::string& each : split(text, ',')) {
    const auto equals = each.find('=');
    const std::string name = each.substr(0, equals);
    const auto found = settings().find(name);
    check(equals != std::string::npos && found != settings().end(), "run: --rdzv-conf: must be ",
        "NAME=VALUE,... of ", joined(names), ": ", each, did_you_mean(name, names));
    found->second(request.meeting, name, each.substr(equals + 1));
  }
}

bool is_range(const RunRequest& request) { return request.nodes.find(':') != std::string::npos; }

/// Reads N or MIN:MAX.
void read_nodes(RunRequest& request) {
  const auto colon = request.nodes.find(':');
  Meeting& meeting = request.meeting;
  meeting.least_nodes = node_number("--nnodes", request.nodes.substr(0, colon));
  meeting.most_nodes = meeting.least_nodes;
  if (is_range(request))
    meeting.most_nodes = node_number("--nnodes", request.nodes.substr(colon + 1));
}

/// Says whether nodes find each other, instead of each having its number.
bool meets(const RunRequest& request) {
  const std::string& backend = request.rendezvous_backend;
  check(backend.empty() || backend == "static" || backend == "lockstep" || backend == "c10d",
      "run: --rdzv-backend: must be static, lockstep or c10d, which is lockstep here: ", backend);
  check(backend != "static" || !is_range(request), "run: --nnodes: a range of nodes (",
      request.nodes, ") needs --rdzv-backend lockstep: with static each has a fixed number");
  return (!backend.empty() && backend != "static") || is_range(request);
}

/// Fills in address and port for nodes with numbers: the flags, then the endpoint, then torchrun's
/// port or a free one.
void place_master(RunRequest& request) {
  Options& options = request.options;
  std::string address = request.master_address;
  // The cluster's, which it leaves empty where it does not know.
  if (address.empty() && request.endpoint.empty() && options.nodes > 1)
    address = options.master_address == kLoopback ? "" : options.master_address;
  if (!request.endpoint.empty()) {
    const auto colon = request.endpoint.rfind(':');
    if (address.empty()) address = request.endpoint.substr(0, colon);
    if (options.master_port == 0 && colon != std::string::npos)
      options.master_port =
          node_number("--rdzv-endpoint: the port", request.endpoint.substr(colon + 1));
  }
  check(options.nodes == 1 || !address.empty(),
      "run: several hosts need --master-addr, the address of host 0, or --rdzv-endpoint");
  if (!address.empty()) options.master_address = address;
  if (options.master_port == 0 && options.nodes > 1) options.master_port = kUsualPort;
}

void place_meeting(RunRequest& request) {
  Meeting& meeting = request.meeting;
  Options& options = request.options;
  const std::string place = request.endpoint.empty() ? request.master_address : request.endpoint;
  check(!place.empty(), "run: --rdzv-endpoint: nodes that find each other need one: HOST:PORT, of ",
      "the node that serves");
  const int usual =
      request.endpoint.empty() && options.master_port > 0 ? options.master_port : kUsualMeetingPort;
  const auto endpoint = net::parse_endpoint("run: --rdzv-endpoint", place, usual);
  meeting.host = endpoint.host;
  meeting.port = endpoint.port;
  launch::check_rendezvous(meeting);
  options.nodes = 1;
  options.node_rank = 0;  // it is given by the rendezvous
  options.master_port = 0;
  options.rendezvous = meeting;
}

}  // namespace

FlagGroup<RunRequest> node_flags() {
  return {
      "Several hosts (the same command on each; with --rdzv-backend static its own --node-rank)",
      {flag("--nnodes", "N", "hosts that take part, or MIN:MAX", &RunRequest::nodes)
              .variable("PET_NNODES"),
          flag("--rdzv-backend", "NAME",
              "lockstep (or c10d): they find each other; static: by numbers",
              &RunRequest::rendezvous_backend)
              .usually("")
              .variable("PET_RDZV_BACKEND"),
          flag("--rdzv-endpoint", "HOST[:PORT]", "where they meet: the address of one of them",
              &RunRequest::endpoint)
              .usually("the port is 29400")
              .variable("PET_RDZV_ENDPOINT"),
          flag("--rdzv-id", "ID", "name of the run, TORCHELASTIC_RUN_ID of the ranks",
              &RunRequest::options, &Options::run_id)
              .variable("PET_RDZV_ID"),
          flag_by<RunRequest>("--rdzv-conf", "NAME=VALUE,...",
              "join_timeout, last_call_timeout, is_host, secret_file, ...", read_settings)
              .variable("PET_RDZV_CONF"),
          flag("--rdzv-secret-file", "FILE", "secret that all hosts share, else LOCKSTEP_SECRET",
              &RunRequest::meeting, &Meeting::secret_file)
              .variable("LOCKSTEP_SECRET_FILE"),
          flag_on("--insecure", "meet without a secret on a network that only you reach",
              &RunRequest::meeting, &Meeting::insecure),
          flag("--local-addr", "HOST", "address of this host, as others reach it",
              &RunRequest::meeting, &Meeting::local_address)
              .usually("that of the way there")
              .variable("PET_LOCAL_ADDR"),
          flag("--node-rank", "K", "static: number of this host, from 0", &RunRequest::options,
              &Options::node_rank)
              .from(0)
              .to(kMostRanks)
              .variable("PET_NODE_RANK"),
          flag("--master-addr", "HOST", "static: address of host 0", &RunRequest::master_address)
              .usually("127.0.0.1 for one host")
              .variable("PET_MASTER_ADDR"),
          flag("--master-port", "PORT", "static: port of rank 0", &RunRequest::options,
              &Options::master_port)
              .usually(concat(kUsualPort, "; a free one for one host"))
              .from(0)
              .to(kMostPort)
              .variable("PET_MASTER_PORT"),
          flag_on("--standalone", "one host and a free port, whatever the variables say",
              &RunRequest::standalone)
              .variable("PET_STANDALONE")}};
}

void place_nodes(RunRequest& request, const GivenFlags& given) {
  Options& options = request.options;
  check(request.meeting.secret_file.empty() || !given.has("--rdzv-secret-file") ||
            (!request.standalone && meets(request)),
      "run: --rdzv-secret-file is for nodes that find each other; with static nothing is secret: "
      "add --rdzv-backend lockstep, or leave it out");
  if (request.standalone) {
    read_nodes(request);
    check(!given.has("--nnodes") || request.meeting.least_nodes == 1,
        "run: --standalone is one host, and --nnodes says ", request.nodes, "; leave out one");
    check(!given.has("--node-rank") || options.node_rank == 0,
        "run: --standalone has host 0 alone, and --node-rank says ", options.node_rank);
    options.nodes = 1;
    options.node_rank = 0;
    options.master_port = 0;
    return;
  }
  read_nodes(request);
  if (meets(request) && request.meeting.most_nodes > 1) return place_meeting(request);
  options.nodes = request.meeting.most_nodes;
  ask_cluster(options, given);
  place_master(request);
}

void add_own_facts(launch::RendezvousOptions& meeting) {
  const std::string program = sibling_program("train", "lockstep-train");
  meeting.same.emplace_back("the SHA-256 of lockstep-train", sha256_of_file(program));
  meeting.same.emplace_back("its LibTorch", build_facts().at("libtorch").get<std::string>());
}

}  // namespace lockstep::cli
