#pragma once

#include <string>
#include <vector>

#include "lockstep/launch/launch_options.h"
#include "lockstep/launch/restart.h"
#include "lockstep/liveness/spare.h"

namespace lockstep::launch {

/// The new facts of one attempt for one of its ranks.
struct RankPlan : AttemptPlan {
  int master_port = 0;
  std::string progress = {};  ///< where a rank may report how far it is (liveness/progress_page.h)
  int local_rank = 0;
  std::string error_file = {};  ///< where a rank may write what failed, as torch's `record` does
};

/// Names a rank's place in torchrun's variables and in our own; an empty value means unset.
Variables worker_variables(const LaunchOptions& options, const RankPlan& plan);

/// Returns a worker's whole environment: what it inherits, torchrun's names for its place, our own
/// LOCKSTEP_PROGRESS and LOCKSTEP_DEATH_NS, where there is a rendezvous the way to its store, and
/// defaults for what the user has not set:
/// OMP_NUM_THREADS=1 with several workers, NCCL's error handling, unbuffered Python, and what
/// for_tensors() adds.
/// The secret of the nodes is taken out: no rank needs it.
std::vector<std::string> worker_environment(
    std::vector<std::string> inherited, const LaunchOptions& options, const RankPlan& plan);

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
