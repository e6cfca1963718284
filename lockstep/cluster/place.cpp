#include "lockstep/cluster/place.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdlib.h>
#include <unistd.h>
#include <vector>

#include "lockstep/cluster/node_list.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep::cluster {
namespace {

constexpr int kFirstPort = 15000, kPorts = 10000;
constexpr int kUsualPort = 29500;  // torchrun's
constexpr int kMostPort = 65535;

/// Returns the number as a message shows it: `SLURM_PROCID is 3 of SLURM_STEP_NUM_TASKS 4 (Slurm)`.
std::string in_words(const Place& place) {
  return concat(place.rank_variable, " is ", place.rank, " of ", place.size_variable, " ",
      place.size, " (", place.source, ")");
}

std::optional<std::string> text_of_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

bool has_the_name_of_a_shell(const Surroundings& here) {
  const std::string name = here.text("SLURM_JOB_NAME").value_or("");
  return name == "bash" || name == "interactive";
}

// With one task to a node, or several.
int tasks_here(const Surroundings& here, const Place& step) {
  if (step.nodes == 1) return step.size;
  const auto counts = here.text("SLURM_STEP_TASKS_PER_NODE");
  if (!counts) return 0;
  const auto all = expand_task_counts(*counts);
  const auto node = static_cast<std::size_t>(step.node);
  return node < all.size() ? all[node] : 0;
}

// Where the list is missing, srun's own host is the best guess: that of the batch script.
std::string first_host_of(const Surroundings& here) {
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"})
    if (const auto list = here.text(name)) return expand_node_list(*list).front();
  return here.text("SLURM_LAUNCH_NODE_IPADDR").value_or("");
}

void check_within(int value, int size, const char* name, const char* of) {
  check(value < size, "environment: ", name, " must be below ", of, ": ", value, " of ", size);
}

Place step_of(const Surroundings& here) {
  const bool old = !here.has("SLURM_STEP_NUM_TASKS");
  Place step{.source = "Slurm",
      .rank_variable = "SLURM_PROCID",
      .size_variable = old ? "SLURM_NTASKS" : "SLURM_STEP_NUM_TASKS"};
  step.rank = here.count(step.rank_variable).value_or(0);
  step.size = here.count(step.size_variable, 1).value_or(1);
  check_within(step.rank, step.size, "SLURM_PROCID", step.size_variable.c_str());
  step.node = here.count("SLURM_NODEID").value_or(0);
  step.nodes =
      here.count("SLURM_STEP_NUM_NODES", 1).value_or(here.count("SLURM_NNODES", 1).value_or(1));
  check_within(step.node, step.nodes, "SLURM_NODEID", "SLURM_STEP_NUM_NODES");
  step.local_rank = here.count("SLURM_LOCALID").value_or(0);
  step.local_size = tasks_here(here, step);
  return step;
}

bool is_interactive(const Surroundings& here) {
  // The task itself is started by srun, whatever the job is called: `salloc`, then `srun PROGRAM`.
  if (here.text("SLURM_TASK_PID") == std::to_string(here.process)) return false;
  // By `srun --pty`. Without it, `srun -n 4 bash script` calls its job bash, too.
  return here.has("SLURM_PTY_PORT") ||
         (has_the_name_of_a_shell(here) && here.count("SLURM_STEP_NUM_TASKS").value_or(1) == 1);
}

// Of a step. A batch script is no step, although SLURM_PROCID is 0 there, nor is what is typed into
// an interactive shell of a job, where they are left over.
std::optional<Place> slurm_numbering(const Surroundings& here) {
  if (!here.has("SLURM_PROCID") || !here.has("SLURM_STEP_ID") || is_interactive(here))
    return std::nullopt;
  Place step = step_of(here);
  step.master_address = first_host_of(here);
  step.cpus = here.count("SLURM_CPUS_PER_TASK", 1).value_or(0);
  if (const auto job = here.text("SLURM_JOB_ID")) {
    step.job = concat("slurm-", *job, ".", *here.text("SLURM_STEP_ID"));
    step.master_port = port_of_job(*job);
  }
  return step;
}

/// The names by which a program that starts ranks numbers them.
struct Names {
  const char* source;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

constexpr Names kOpenMpi{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names kPmi{
    "MPICH or Intel MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
constexpr Names kMvapich{"MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE",
    "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"};
constexpr Names kLsf{"LSF", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK",
    "JSM_NAMESPACE_LOCAL_SIZE"};

// Of several on a node the number of the node is not known.
void find_node(Place& found) {
  if (found.local_size == found.size) {
    found.nodes = 1;
  } else if (found.local_size == 1) {
    found.node = found.rank;
    found.nodes = found.size;
  }
}

std::optional<Place> numbered_by(const Names& names, const Surroundings& here) {
  const auto rank = here.count(names.rank), size = here.count(names.size, 1);
  if (!rank) return std::nullopt;
  check(size.has_value(), "environment: ", names.rank, " is set, but ", names.size,
      " is not; unset the one, or set RANK and WORLD_SIZE");
  check_within(*rank, *size, names.rank, names.size);
  Place found{.source = names.source,
      .rank_variable = names.rank,
      .size_variable = names.size,
      .rank = *rank,
      .size = *size};
  found.local_rank = here.count(names.local_rank).value_or(0);
  found.local_size = here.count(names.local_size, 1).value_or(*size == 1 ? 1 : 0);
  if (found.local_size > 0)
    check_within(found.local_rank, found.local_size, names.local_rank, names.local_size);
  find_node(found);
  return found;
}

// The first line of the rank file is the host that launches, which has no rank.
std::string first_host_of_lsf(const Surroundings& here) {
  const auto path = here.text("LSB_DJOB_RANKFILE");
  const auto text = path && here.read_file ? here.read_file(*path) : std::nullopt;
  std::istringstream lines(text.value_or(""));
  std::string launcher, first;
  lines >> launcher >> first;
  return first;
}

std::optional<Place> open_mpi_numbering(const Surroundings& here) {
  auto found = numbered_by(kOpenMpi, here);
  const auto job = here.text("PMIX_NAMESPACE");
  if (!found || !job) return found;
  found->job = concat("mpirun-", *job);
  found->master_port = port_of_job(*job);
  return found;
}

std::optional<Place> lsf_numbering(const Surroundings& here) {
  auto found = numbered_by(kLsf, here);
  if (!found) return found;
  found->master_address = first_host_of_lsf(here);
  if (const auto job = here.text("LSB_JOBID")) {
    found->job = concat("lsf-", *job);
    found->master_port = port_of_job(*job);
  }
  return found;
}

// Of two with the same size the first one is taken.
std::vector<Place> all_numberings(const Surroundings& here) {
  std::vector<Place> all;
  for (const auto& found : {slurm_numbering(here), open_mpi_numbering(here),
           numbered_by(kPmi, here), numbered_by(kMvapich, here), lsf_numbering(here)})
    if (found) all.push_back(*found);
  return all;
}

// mpirun starts one process on each node by srun, and the ranks by those: Slurm has the smaller
// number of them.
bool may_stand_beside(const Place& other, const Place& chosen) {
  if (other.size < chosen.size) return other.source == "Slurm";
  return other.rank == chosen.rank;
}

// The only one, or that which numbers ranks where the other numbers nodes, as Slurm does below
// mpirun.
std::optional<Place> numbering(const Surroundings& here) {
  const auto all = all_numberings(here);
  if (all.empty()) {
    const bool by_pmix = here.has("PMIX_RANK") && !here.has("SLURM_JOB_ID") && !here.has("RANK");
    check(!by_pmix, "environment: PMIX_RANK is ", here.text("PMIX_RANK").value_or(""),
        ", but nothing says of how many ranks; set RANK and WORLD_SIZE, or unset it");
    return std::nullopt;
  }
  const auto chosen = std::ranges::max_element(all, {}, &Place::size);
  for (const Place& other : all) {
    check(may_stand_beside(other, *chosen),
        "environment: this process has two numbers: ", in_words(*chosen), ", but ", in_words(other),
        "; unset those that are left over");
  }
  return *chosen;
}

bool has_a_launcher(const Surroundings& here) { return here.has("TORCHELASTIC_RUN_ID"); }

// A smaller number of them are nodes: what set RANK has started several ranks on each.
void check_rank(const Surroundings& here, const Place& cluster) {
  const auto rank = here.count("RANK"), size = here.count("WORLD_SIZE", 1);
  if (!size) return;
  const bool agrees = rank ? *rank == cluster.rank : true;
  check(cluster.size < *size || (cluster.size == *size && agrees),
      "environment: this process has two numbers: RANK is ", rank ? concat(*rank) : "not set",
      " of WORLD_SIZE ", *size, ", but ", in_words(cluster), "; unset those that are left over");
}

std::string master_of(const Surroundings& here, const Place& cluster) {
  if (const auto address = here.text("MASTER_ADDR")) return *address;
  if (cluster.local_size == cluster.size) return "127.0.0.1";
  check(!cluster.master_address.empty(), "environment: ", cluster.source,
      " does not say on which host rank 0 runs; set MASTER_ADDR to its name, as by mpirun -x "
      "MASTER_ADDR=HOST");
  return cluster.master_address;
}

int port_of(const Surroundings& here, const Place& cluster) {
  const auto port = here.count("MASTER_PORT", 1);
  check(
      port.value_or(1) <= kMostPort, "environment: MASTER_PORT is not a port: ", port.value_or(1));
  return port.value_or(cluster.master_port > 0 ? cluster.master_port : kUsualPort);
}

// Each would start ranks of its own for the whole node.
void check_one_a_node(const Place& cluster) {
  if (cluster.size == 1) return;
  check(cluster.local_size > 0, "environment: ", in_words(cluster),
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

template <typename Value>
void set(const char* name, const Value& value) {
  ::setenv(name, concat(value).c_str(), 1);
}

}  // namespace

std::optional<std::string> Surroundings::text(const std::string& name) const {
  const auto found = variables.find(name);
  if (found == variables.end()) return std::nullopt;
  check(!found->second.empty(), "environment: ", name,
      " is set, but empty; give it a value, or unset it");
  return found->second;
}

std::optional<int> Surroundings::count(const std::string& name, int least) const {
  const auto value = text(name);
  if (!value) return std::nullopt;
  const auto number = parse_number<int>(*value);
  check(number && *number >= least && *number <= kMostRanks, "environment: ", name,
      " must be a whole number from ", least, " to ", kMostRanks, ": ", printable(*value));
  return number;
}

Surroundings surroundings_of_this_process() {
  Surroundings here{.variables = {}, .process = ::getpid(), .read_file = text_of_file};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    if (equals != std::string::npos)
      here.variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return here;
}

int port_of_job(const std::string& job) {
  const bool is_number = job.find_first_not_of("0123456789") == std::string::npos;
  unsigned sum = 0;
  for (const char letter : job) {
    const auto digit =
        static_cast<unsigned>(static_cast<unsigned char>(letter) - (is_number ? '0' : 0));
    sum = is_number ? (sum * 10 + digit) % kPorts : sum * 31 + digit;
  }
  return kFirstPort + static_cast<int>(sum % kPorts);
}

std::optional<Place> rank_place(const Surroundings& here) {
  if (has_a_launcher(here)) return std::nullopt;
  auto place = numbering(here);
  if (!place) return std::nullopt;
  check_rank(here, *place);
  if (here.has("RANK") || place->size == 1) return std::nullopt;
  place->master_address = master_of(here, *place);
  place->master_port = port_of(here, *place);
  place->restarts = job_restarts(here);
  return place;
}

std::optional<Place> node_place(const Surroundings& here) {
  if (has_a_launcher(here)) return std::nullopt;
  auto place = numbering(here);
  if (!place) return std::nullopt;
  check_one_a_node(*place);
  return place->size == 1 ? std::nullopt : place;
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

void adopt_rank_place() {
  const auto place = rank_place(surroundings_of_this_process());
  if (!place) return;
  set("RANK", place->rank);
  set("WORLD_SIZE", place->size);
  set("LOCAL_RANK", place->local_rank);
  if (place->local_size > 0) set("LOCAL_WORLD_SIZE", place->local_size);
  set("MASTER_ADDR", place->master_address);
  set("MASTER_PORT", place->master_port);
  set("TORCHELASTIC_RUN_ID", place->job.empty() ? "none" : place->job);
  ::setenv("TORCHELASTIC_RESTART_COUNT", concat(place->restarts).c_str(), 0);
  // A launcher does the same: ranks of one node that each use all cores slow one another down.
  if (place->local_size != 1)
    ::setenv("OMP_NUM_THREADS", concat(std::max(1, place->cpus)).c_str(), 0);
}

}  // namespace lockstep::cluster
