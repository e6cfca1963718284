#pragma once

#include "lockstep/flags/flag_spec.h"
#include "lockstep/launch/launch_options.h"

namespace lockstep::cli {

/// Fills in from the variables of a cluster, such as Slurm, what neither the flags nor their PET_*
/// variables say of the hosts: how many there are, the number of this one, the address (empty where
/// it is not known) and the port of host 0. Says on stderr which hosts of a job are left out. Does
/// nothing where the flags speak of one host, or of another number of hosts than the cluster.
///
/// Throws InvalidArgument where the cluster has started several launchers on a host.
void ask_cluster(launch::LaunchOptions& options, const GivenFlags& given);

/// Does the same for a verb without flags for hosts, which reads their PET_* variables here.
void place_node(launch::LaunchOptions& options);

/// Says whether PET_NNODES speaks of several hosts: then one rank on each needs a launcher, too.
bool is_of_several_nodes();

/// Lets a launcher that `lockstep hosts`, or Slurm, has started again count on from there.
void count_on(launch::LaunchOptions& options);

}  // namespace lockstep::cli
