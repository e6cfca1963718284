#include "lockstep/cli/env/scheduler_facts.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "lockstep/cluster/place.h"
#include "lockstep/core/error.h"

namespace lockstep::cli {
namespace {

Facts schedulers_of(const cluster::Surroundings& here) {
  const std::vector<std::pair<std::string, const char*>> known{{"Slurm", "SLURM_JOB_ID"},
      {"Open MPI", "OMPI_COMM_WORLD_SIZE"}, {"PMIx", "PMIX_RANK"}, {"PMI", "PMI_SIZE"},
      {"MVAPICH", "MV2_COMM_WORLD_SIZE"}, {"LSF", "LSB_JOBID"},
      {"Kubernetes", "KUBERNETES_SERVICE_HOST"}, {"torchrun or lockstep", "TORCHELASTIC_RUN_ID"}};
  Facts found = Facts::array();
  for (const auto& [name, variable] : known)
    if (here.has(variable)) found.push_back(name);
  return found;
}

std::string in_job(const std::string& job) { return job.empty() ? "" : concat(", job ", job); }

std::string alone(const std::string& note) {
  return note.empty() ? "alone" : concat("alone; ", note);
}

std::string as_rank(const cluster::Surroundings& here) {
  const auto place = cluster::rank_place(here);
  if (here.has("RANK"))
    return concat("rank ", *here.text("RANK"), " of ", here.text("WORLD_SIZE").value_or("?"),
        " by RANK and WORLD_SIZE");
  if (!place) return alone(cluster::tasks_left_out(here));
  return concat("rank ", place->rank, " of ", place->size, " by ", place->source, ", ",
      place->local_rank, " of ", place->local_size, " on this node, meets at ",
      place->master_address, ":", place->master_port, in_job(place->job));
}

std::string as_launcher(const cluster::Surroundings& here) {
  if (const auto nodes = here.text("PET_NNODES"))
    return concat("node ", here.text("PET_NODE_RANK").value_or("0"), " of ", *nodes,
        " by PET_NNODES and PET_NODE_RANK");
  const auto place = cluster::node_place(here);
  if (!place) return alone(cluster::nodes_left_out(here));
  return concat("node ", place->node, " of ", place->nodes, " by ", place->source, ", node 0 is ",
      place->master_address.empty() ? "not known" : place->master_address, in_job(place->job));
}

// What is refused is what its user needs to see.
template <typename Say>
std::string or_refusal(const Say& say, const cluster::Surroundings& here) {
  try {
    return say(here);
  } catch (const InvalidArgument& error) {
    return concat("refused: ", error.what());
  }
}

}  // namespace

Facts scheduler_facts(const cluster::Surroundings& here) {
  return {{"found", schedulers_of(here)}, {"a_rank_here", or_refusal(as_rank, here)},
      {"a_launcher_here", or_refusal(as_launcher, here)}};
}

}  // namespace lockstep::cli
