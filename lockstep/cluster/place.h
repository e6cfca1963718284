#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

namespace lockstep::cluster {

/// The variables of a process, and the little else that its place in a run follows from. Places are
/// pure functions of it.
struct Surroundings {
  std::map<std::string, std::string> variables;
  int process = 0;  ///< its id, as its cluster knows it
  /// Returns what is in a file; nothing if it cannot be read.
  std::function<std::optional<std::string>(const std::string& path)> read_file = {};

  bool has(const std::string& name) const { return variables.contains(name); }

  /// Returns a variable's value. One that is set but empty is an InvalidArgument that names it, as
  /// in core/environment.h.
  std::optional<std::string> text(const std::string& name) const;

  /// Reads one as a whole number up to kMostRanks; throws InvalidArgument that names it for
  /// anything else.
  std::optional<int> count(const std::string& name, int least = 0) const;
};

/// Returns those of this process.
Surroundings surroundings_of_this_process();

/// The place of a process among those that a cluster's program has started: a rank's in the world,
/// or that of a node's launcher.
struct Place {
  std::string source;              ///< `Slurm`
  std::string rank_variable = {};  ///< `SLURM_PROCID`
  std::string size_variable = {};
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 0;               ///< of those on this node; 0: not known
  int node = 0;                     ///< this node's number
  int nodes = 0;                    ///< 0: not known
  std::string master_address = {};  ///< on which rank 0, or node 0, listens; empty: not known
  int master_port = 0;              ///< 0: not known
  std::string job = {};             ///< `slurm-71.0`, equal in all of its processes; may be empty
  int restarts = 0;                 ///< of the job, by its cluster
  int cpus = 0;                     ///< for each process; 0: not said
};

/// Returns the place of a worker, a program that trains; nothing where it is alone, or where a
/// launcher has given it RANK and WORLD_SIZE: below torchrun or `lockstep run` a cluster's
/// variables number nodes.
///
/// Throws InvalidArgument that shows both numbers where RANK, without a launcher, is another than
/// the cluster's, and that says what to set where the host of rank 0 is not known.
std::optional<Place> rank_place(const Surroundings& here);

/// Returns the place of a launcher, which does not read RANK; nothing where it is alone. Throws
/// InvalidArgument where the cluster has started several launchers on a node.
std::optional<Place> node_place(const Surroundings& here);

/// Returns how often the cluster has started the job of this process again.
int job_restarts(const Surroundings& here);

/// Says to a worker without a place, or to a launcher, that the job has more tasks, or more nodes;
/// empty if it has not.
std::string tasks_left_out(const Surroundings& here);
std::string nodes_left_out(const Surroundings& here);

/// Sets the variables of a launcher (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,
/// MASTER_PORT, TORCHELASTIC_RUN_ID, TORCHELASTIC_RESTART_COUNT) for a process that a cluster's
/// program has started as a rank, and OMP_NUM_THREADS where it is not set; otherwise it does
/// nothing. For the beginning of a program: before it has threads, and, for OMP_NUM_THREADS, before
/// LibTorch is loaded. Throws as rank_place().
void adopt_rank_place();

/// Returns a port for a job, the same in all of its processes: 15000 + the last four digits of its
/// number, or of a sum over another name.
int port_of_job(const std::string& job);

}  // namespace lockstep::cluster
