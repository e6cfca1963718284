#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/flags/flag_spec.h"
#include "lockstep/launch/launch_options.h"
#include "lockstep/snapshot/run_lock.h"

namespace lockstep::cli {

/// A request to `lockstep train`, cut into the part about the start of the ranks and the rest.
struct TrainLaunch {
  launch::LaunchOptions options;
  std::vector<std::string> rest;             ///< for lockstep-train, unchanged
  GivenFlags given;                          ///< all flags
  std::unique_ptr<const RunLock> logs = {};  ///< while it lives, no other launcher writes there

  /// Says whether a launcher is of use: one rank that is neither to be restarted nor watched is run
  /// as it is.
  bool needs_a_launcher() const {
    return options.workers > 1 || options.max_restarts > 0 || given.has("--hang-timeout");
  }
};

/// Takes out of the flags of `lockstep train` those that its table has for the launcher, and
/// refuses unknown ones.
///
/// Several ranks are restarted up to 3 times unless it says otherwise. Rank 0 writes to our
/// terminal itself, the others are shown when they fail. `--nproc-per-node auto` counts cores where
/// `--device cpu` is given.
TrainLaunch parse_train_launch(const std::vector<std::string>& arguments,
    const launch::Processors& host = launch::processors());

/// Lets a stop signal that comes before `lockstep train` can answer it wait in its ranks, which it
/// would end otherwise.
void hold_stops(launch::LaunchOptions& options);

/// Says whether the ranks to start are `lockstep train` of this very program.
bool starts_train(const launch::LaunchOptions& options);

/// Fills in from the variables of a cluster, such as Slurm, what neither the flags nor their PET_*
/// variables say of the hosts: how many there are, the number of this one, the address (empty where
/// it is not known) and the port of host 0. Says on stderr which hosts of a job are left out. Does
/// nothing where the flags speak of one host, or of another number of hosts than the cluster.
///
/// Throws InvalidArgument where the cluster has started several launchers on a host.
void ask_cluster(launch::LaunchOptions& options, const GivenFlags& given);

/// Lets a launcher that `lockstep hosts`, or Slurm, has started again count on from there.
void count_on(launch::LaunchOptions& options);

/// Throws InvalidArgument for a flag that would decide about the way of spreading which
/// `--parallel auto` is to choose, or make the training depend on that choice.
void check_way_is_open(const GivenFlags& given);

/// Returns the flags of `lockstep train` without `--parallel auto`. A run that is continued keeps
/// its way of spreading, with the flags that its config.toml has; for a new one this becomes
/// `lockstep plan --train`, which measures, and trains with the fastest way. Throws InvalidArgument
/// in a rank of a launcher, whose number is decided already, and for what the way of a run that is
/// continued contradicts.
std::vector<std::string> resolve_auto_parallel(const std::vector<std::string>& arguments);

}  // namespace lockstep::cli
