#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cluster {

/// No list has more hosts, as in Slurm.
inline constexpr std::size_t kMostNodes = 65536;

/// Expands a list of hosts as Slurm writes it, in its order.
///
///     expand_node_list("a[01-03,7],b")   // a01 a02 a03 a7 b
///     expand_node_list("r[1-2]n[1-2]")   // r1n1 r1n2 r2n1 r2n2
///
/// Throws InvalidArgument that names the place for anything else, also for more hosts than
/// kMostNodes.
std::vector<std::string> expand_node_list(std::string_view text);

/// Expands the numbers of processes on each node as Slurm writes them: `2(x3),1` is 2 2 2 1. Throws
/// the same.
std::vector<int> expand_task_counts(std::string_view text);

}  // namespace lockstep::cluster
