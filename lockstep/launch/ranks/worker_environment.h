#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/launch_options.h"
#include "lockstep/liveness/spare.h"

namespace lockstep::launch {

/// The place of a process in a run: which worker it is.
struct WorkerPlace {
  int local_rank = 0;
  int local_size = 1;  ///< workers on this node
  int node_rank = 0;
  int nodes = 1;
  std::string master_address = "127.0.0.1";
  int master_port = 0;
  std::string run_id = "none";
  std::string role = "default";
  int restart = 0;
  int max_restarts = 0;
  std::int64_t death_ns = 0;  ///< of the attempt before, on the monotonic clock; 0: there was none
  std::string progress;       ///< where a worker may report how far it is (liveness/progress_page.h)
  std::string error_file;     ///< where a worker may write what failed, as torch's `record` does
  std::string signals_to_handle;  ///< names, separated by commas
  std::optional<RankSpan> span = {};

  int rank() const { return (span ? span->first_rank : node_rank * local_size) + local_rank; }
  int world_size() const { return span ? span->world_size : nodes * local_size; }
};

/// Names the place in torchrun's variables and in our own; an empty value means unset.
Variables worker_variables(const WorkerPlace& place);

/// Returns a worker's whole environment: what it inherits, torchrun's names for its place, our own
/// LOCKSTEP_PROGRESS and LOCKSTEP_DEATH_NS, where there is a rendezvous the way to its store, and
/// defaults for what the user has not set:
/// OMP_NUM_THREADS=1 with several workers, NCCL's error handling, unbuffered Python, and what
/// for_tensors() adds.
/// The secret of the nodes is taken out: no rank needs it.
std::vector<std::string> worker_environment(
    std::vector<std::string> inherited, const WorkerPlace& place);

/// Returns the environment of a process that waits to become a worker: the same without a place,
/// which will come by the pipe with this descriptor.
std::vector<std::string> spare_environment(
    std::vector<std::string> inherited, int local_size, int pipe);

/// Adds the settings that make glibc's allocator keep large blocks instead of returning them to the
/// kernel after each step. They must be there before the program starts.
std::vector<std::string> with_allocator_tunables(std::vector<std::string> environment);

/// Adds what OpenMP's libraries read when they are loaded, unless the user has set it: short waits,
/// and as many threads as the cores that a quota leaves of those available.
std::vector<std::string> with_openmp_settings(
    std::vector<std::string> environment, int usable, int available);

/// Adds the settings of allocator and OpenMP that suit a program that computes with tensors here.
std::vector<std::string> for_tensors(std::vector<std::string> environment);

/// Appends to the user's GLIBC_TUNABLES those of our settings whose names are missing there.
std::string allocator_tunables(const std::string& users);

/// Returns this process's environment as NAME=VALUE.
std::vector<std::string> current_environment();

}  // namespace lockstep::launch
