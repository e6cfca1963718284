// The half of numbering.h that knows Slurm.

#include "lockstep/cluster/node_list.h"
#include "lockstep/cluster/numbering.h"
#include "lockstep/core/error.h"

namespace lockstep::cluster {
namespace {

bool has_the_name_of_a_shell(const Surroundings& here) {
  const std::string name = here.text("SLURM_JOB_NAME").value_or("");
  return name == "bash" || name == "interactive";
}

// With one task to a node, or several.
int tasks_here(const Surroundings& here, const Numbering& step) {
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

Numbering step_of(const Surroundings& here) {
  const bool old = !here.has("SLURM_STEP_NUM_TASKS");
  Numbering step{.source = "Slurm",
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

}  // namespace

bool is_interactive(const Surroundings& here) {
  // The task itself is started by srun, whatever the job is called: `salloc`, then `srun PROGRAM`.
  if (here.text("SLURM_TASK_PID") == std::to_string(here.process)) return false;
  // By `srun --pty`. Without it, `srun -n 4 bash script` calls its job bash, too.
  return here.has("SLURM_PTY_PORT") ||
         (has_the_name_of_a_shell(here) && here.count("SLURM_STEP_NUM_TASKS").value_or(1) == 1);
}

std::optional<Numbering> slurm_numbering(const Surroundings& here) {
  if (!here.has("SLURM_PROCID") || !here.has("SLURM_STEP_ID") || is_interactive(here))
    return std::nullopt;
  Numbering step = step_of(here);
  step.first_host = first_host_of(here);
  step.cpus = here.count("SLURM_CPUS_PER_TASK", 1).value_or(0);
  if (const auto job = here.text("SLURM_JOB_ID")) {
    step.job = concat("slurm-", *job, ".", *here.text("SLURM_STEP_ID"));
    step.port = port_of_job(*job);
  }
  return step;
}

}  // namespace lockstep::cluster
