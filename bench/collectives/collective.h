#pragma once

#include <array>
#include <optional>
#include <string>

namespace lockstep::bench {

/// A collective that can be measured.
enum class Collective { kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter, kAllToAll };

inline constexpr std::array kCollectives{Collective::kAllReduce, Collective::kReduce,
    Collective::kBroadcast, Collective::kAllGather, Collective::kReduceScatter,
    Collective::kAllToAll};

/// Returns the name that ProcessGroup calls it by: `all_reduce`.
const char* name_of(Collective collective);

/// Finds a collective by its name.
std::optional<Collective> find_collective(const std::string& name);

/// Returns what the algorithm bandwidth, message / time, is multiplied by for the bus bandwidth, as
/// in nccl-tests: then numbers of ranks and collectives can be compared with the rate of the
/// hardware.
///
/// The message is what one rank holds of all_reduce, reduce and broadcast, and the larger side of
/// the others: what all_gather puts together, what reduce_scatter takes.
double bus_factor(Collective collective, int ranks);

/// Returns the least that each rank must do where ranks share memory and divide the work evenly, as
/// a share of copying the message once: half of the bytes that it reads and writes, by those of the
/// message. A copy reads it once and writes it once.
double copy_share(Collective collective, int ranks);

}  // namespace lockstep::bench
