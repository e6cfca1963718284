#include "lockstep/cli/run/cluster_node.h"

#include <iostream>

#include "lockstep/cluster/place.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"

namespace lockstep::cli {
namespace {

constexpr int kUsualNodePort = 29500;  // torchrun's

bool is_given(const GivenFlags& given, const char* flag, const char* variable) {
  return given.has(flag) || !system_variable(variable).empty();
}

void take(
    launch::LaunchOptions& options, const cluster::NodePlace& place, const GivenFlags& given) {
  options.nodes = place.nodes;
  if (!is_given(given, "--node-rank", "PET_NODE_RANK")) options.node_rank = place.node;
  if (options.run_id == "none" && !place.job.empty()) options.run_id = place.job;
  options.master_address = place.master_address;
  const bool has_port = is_given(given, "--master-port", "PET_MASTER_PORT") ||
                        is_given(given, "--rdzv-endpoint", "PET_RDZV_ENDPOINT");
  if (!has_port) options.master_port = place.master_port;
}

}  // namespace

void ask_cluster(launch::LaunchOptions& options, const GivenFlags& given) {
  const bool counted = is_given(given, "--nnodes", "PET_NNODES");
  const bool numbered = is_given(given, "--node-rank", "PET_NODE_RANK");
  if (counted && (numbered || options.nodes == 1)) return;
  const auto here = cluster::surroundings_of_this_process();
  const auto place = cluster::node_place(here);
  const std::string note = counted ? "" : cluster::nodes_left_out(here);
  if (!note.empty()) std::cerr << "lockstep: " << note << std::endl;
  if (place && (!counted || options.nodes == place->nodes)) take(options, *place, given);
}

void place_node(launch::LaunchOptions& options) {
  options.nodes = environment_count("PET_NNODES", 1).value_or(1);
  options.node_rank = environment_count("PET_NODE_RANK").value_or(0);
  options.master_port = environment_count("PET_MASTER_PORT").value_or(0);
  ask_cluster(options, {});
  if (options.nodes == 1) return;
  options.master_address = environment("PET_MASTER_ADDR").value_or(options.master_address);
  check(!options.master_address.empty() && options.master_address != "127.0.0.1",
      "train: several hosts need PET_MASTER_ADDR, the address of host 0");
  if (options.master_port == 0) options.master_port = kUsualNodePort;
}

bool is_of_several_nodes() { return environment("PET_NNODES").value_or("1") != "1"; }

void count_on(launch::LaunchOptions& options) {
  const int by_slurm = cluster::job_restarts(cluster::surroundings_of_this_process());
  options.earlier_restarts = environment_count("TORCHELASTIC_RESTART_COUNT").value_or(by_slurm);
  options.death_ns = environment_number("LOCKSTEP_DEATH_NS").value_or(0);
}

}  // namespace lockstep::cli
