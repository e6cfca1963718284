#pragma once

#include <optional>
#include <string>

#include "lockstep/cluster/surroundings.h"

namespace lockstep::cluster {

/// The number that a cluster's program has given to a process among those that it has started.
struct Numbering {
  std::string source;         ///< `Slurm`
  std::string rank_variable;  ///< `SLURM_PROCID`
  std::string size_variable;
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 0;           ///< of those on this node; 0: not known
  int node = 0;                 ///< this node's number
  int nodes = 0;                ///< 0: not known
  std::string first_host = {};  ///< on which rank 0 runs; empty: not known
  std::string job = {};         ///< `slurm-71.0`, equal in all of its processes; empty: not known
  int port = 0;                 ///< derived from the job; 0: not known
  int cpus = 0;                 ///< for each process; 0: not said

  /// Returns it as a message shows it: `SLURM_PROCID is 3 of SLURM_STEP_NUM_TASKS 4 (Slurm)`.
  std::string in_words() const;
};

/// Returns the numbers of a step of Slurm. A batch script is no step, although SLURM_PROCID is 0
/// there, nor is what is typed into an interactive shell of a job, where they are left over.
std::optional<Numbering> slurm_numbering(const Surroundings& here);

/// Says whether Slurm's variables are those of a shell of an interactive job.
bool is_interactive(const Surroundings& here);

/// Return what mpirun, mpiexec and jsrun have set.
std::optional<Numbering> open_mpi_numbering(const Surroundings& here);
std::optional<Numbering> pmi_numbering(const Surroundings& here);
std::optional<Numbering> mvapich_numbering(const Surroundings& here);
std::optional<Numbering> lsf_numbering(const Surroundings& here);

/// Returns the numbers of this process: those of the only source, or of the one that numbers ranks
/// where the other numbers nodes, as Slurm does below mpirun. Throws InvalidArgument that shows
/// both when two differ.
std::optional<Numbering> numbering(const Surroundings& here);

/// Returns a port for a job, the same in all of its processes: 15000 + the last four digits of its
/// number, or of a sum over another name.
int port_of_job(const std::string& job);

}  // namespace lockstep::cluster
