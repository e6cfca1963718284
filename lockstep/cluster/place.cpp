#include "lockstep/cluster/place.h"

#include "lockstep/cluster/numbering.h"
#include "lockstep/core/error.h"

namespace lockstep::cluster {
namespace {

constexpr int kUsualPort = 29500;  // torchrun's
constexpr int kMostPort = 65535;

bool has_a_launcher(const Surroundings& here) { return here.has("TORCHELASTIC_RUN_ID"); }

// A smaller number of them are nodes: what set RANK has started several ranks on each.
void check_rank(const Surroundings& here, const Numbering& cluster) {
  const auto rank = here.count("RANK"), size = here.count("WORLD_SIZE", 1);
  if (!size) return;
  const bool agrees = rank ? *rank == cluster.rank : true;
  check(cluster.size < *size || (cluster.size == *size && agrees),
      "environment: this process has two numbers: RANK is ", rank ? concat(*rank) : "not set",
      " of WORLD_SIZE ", *size, ", but ", cluster.in_words(), "; unset those that are left over");
}

std::string master_of(const Surroundings& here, const Numbering& cluster) {
  if (const auto address = here.text("MASTER_ADDR")) return *address;
  if (cluster.local_size == cluster.size) return "127.0.0.1";
  check(!cluster.first_host.empty(), "environment: ", cluster.source,
      " does not say on which host rank 0 runs; set MASTER_ADDR to its name, as by mpirun -x "
      "MASTER_ADDR=HOST");
  return cluster.first_host;
}

int port_of(const Surroundings& here, const Numbering& cluster) {
  const auto port = here.count("MASTER_PORT", 1);
  check(
      port.value_or(1) <= kMostPort, "environment: MASTER_PORT is not a port: ", port.value_or(1));
  return port.value_or(cluster.port > 0 ? cluster.port : kUsualPort);
}

// Each would start ranks of its own for the whole node.
void check_one_a_node(const Numbering& cluster) {
  if (cluster.size == 1) return;
  check(cluster.local_size > 0, "environment: ", cluster.in_words(),
      ", but not how many of them run on this node; give the launchers --nnodes, --node-rank and "
      "--master-addr, or --standalone");
  check(cluster.local_size == 1, "environment: ", cluster.source, " has started ",
      cluster.local_size,
      " launchers on this node, and each would start ranks; start one (srun --ntasks-per-node=1, "
      "mpirun --map-by ppr:1:node), or start the program itself, without lockstep run and without "
      "--nproc-per-node");
  check(cluster.nodes == cluster.size, "environment: ", cluster.source, " has started ",
      cluster.size, " launchers on ", cluster.nodes,
      " nodes; start one on each (srun --ntasks-per-node=1)");
}

}  // namespace

std::optional<RankPlace> rank_place(const Surroundings& here) {
  if (has_a_launcher(here)) return std::nullopt;
  const auto found = numbering(here);
  if (!found) return std::nullopt;
  check_rank(here, *found);
  if (here.has("RANK") || found->size == 1) return std::nullopt;
  return RankPlace{.source = found->source,
      .rank = found->rank,
      .size = found->size,
      .local_rank = found->local_rank,
      .local_size = found->local_size,
      .master_address = master_of(here, *found),
      .master_port = port_of(here, *found),
      .job = found->job,
      .restarts = job_restarts(here),
      .cpus = found->cpus};
}

std::optional<NodePlace> node_place(const Surroundings& here) {
  if (has_a_launcher(here)) return std::nullopt;
  const auto found = numbering(here);
  if (!found) return std::nullopt;
  check_one_a_node(*found);
  if (found->size == 1) return std::nullopt;
  return NodePlace{.source = found->source,
      .node = found->node,
      .nodes = found->nodes,
      .master_address = found->first_host,
      .master_port = found->port,
      .job = found->job};
}

int job_restarts(const Surroundings& here) { return here.count("SLURM_RESTART_COUNT").value_or(0); }

std::string tasks_left_out(const Surroundings& here) {
  if (has_a_launcher(here) || here.has("RANK") || !here.has("SLURM_JOB_ID")) return "";
  const int tasks = here.count("SLURM_NTASKS").value_or(1);
  if (tasks <= 1) return "";
  const std::string job = concat("Slurm's job ", *here.text("SLURM_JOB_ID"));
  if (here.has("SLURM_STEP_ID") && is_interactive(here))
    return concat(job, " is interactive: the numbers of its ", tasks,
        " tasks are not taken for those of ranks, and this process works alone; srun PROGRAM "
        "starts a rank for each");
  return here.has("SLURM_STEP_ID") ? ""
                                   : concat(job, " has ", tasks,
                                         " tasks, but srun has not started this process, which "
                                         "works alone; srun PROGRAM starts a rank for each");
}

std::string nodes_left_out(const Surroundings& here) {
  if (has_a_launcher(here) || !here.has("SLURM_JOB_ID")) return "";
  const int nodes = here.count("SLURM_JOB_NUM_NODES").value_or(1);
  if (nodes <= 1 || (here.has("SLURM_STEP_ID") && !is_interactive(here))) return "";
  return concat("Slurm's job ", *here.text("SLURM_JOB_ID"), " has ", nodes,
      " nodes, of which only this one is used; srun --ntasks-per-node=1 lockstep ... uses all");
}

}  // namespace lockstep::cluster
