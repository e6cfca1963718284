#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/enum_names.h"

namespace lockstep::bench {

/// A collective that can be measured.
enum class Collective { kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter, kAllToAll };

/// The names that ProcessGroup calls them by.
constexpr auto names_of(Collective) {
  using C = Collective;
  return std::array{EnumName{C::kAllReduce, "all_reduce"}, EnumName{C::kReduce, "reduce"},
      EnumName{C::kBroadcast, "broadcast"}, EnumName{C::kAllGather, "all_gather"},
      EnumName{C::kReduceScatter, "reduce_scatter"}, EnumName{C::kAllToAll, "all_to_all"}};
}

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

/// The collectives, backends and sizes to measure; sizes grow by a factor.
struct Sweep {
  std::vector<Collective> collectives = {Collective::kAllReduce};
  std::vector<std::string> backends = {"shm", "gloo"};
  /// Tensors in the memory that ProcessGroup::empty() gives, as the buckets of
  /// DistributedDataParallel; else such as anyone makes.
  bool group_memory = true;
  std::int64_t min_bytes = 1024;
  std::int64_t max_bytes = std::int64_t{64} << 20;
  int factor = 4;       ///< from one size to the next
  int warmup = 3;       ///< repeats that are not counted
  int iterations = 10;  ///< repeats that are
  bool check = true;    ///< the result of each size once, before it is timed
};

/// Throws InvalidArgument that names the flag for what cannot be measured by this many ranks.
void check_sweep(const Sweep& sweep, int ranks);

/// Returns the sizes of the message in bytes, each rounded down to whole float32 numbers for every
/// rank.
std::vector<std::int64_t> message_sizes(const Sweep& sweep, int ranks);

/// The name of the file of results in a measurement's folder: one line a collective, backend and
/// size.
inline constexpr const char* kSweepFile = "collectives.jsonl";

/// The measurements of one collective over one backend at one size.
struct SweepLine {
  Collective collective = Collective::kAllReduce;
  std::string backend;
  bool group_memory = true;
  int ranks = 2;
  std::int64_t bytes = 0;  ///< of the message, as bus_factor() has it
  int calls = 1;           ///< in a row in each repeat
  /// Seconds that a call took, those of the slowest rank; one value for each repeat.
  std::vector<double> seconds = {};
  /// Seconds in which each rank copied as many bytes within memory of its own, all at once.
  std::vector<double> copy_seconds = {};
  /// Seconds for which a call keeps a core busy, of the rank that needs most; the median of the
  /// repeats. Nothing in files of older versions.
  std::optional<double> core_seconds = {};
  bool checked = false;  ///< the result was compared with the exact one

  double median_seconds() const;
  double median_copy_seconds() const;
  double algorithm_bandwidth() const;  ///< bytes a second
  double bus_bandwidth() const;        ///< bytes a second
};

/// Writes one JSON object without a newline: `{"v":1,"op":"all_reduce","backend":"shm",...}`.
std::string to_json(const SweepLine& line);

/// Reads what to_json() wrote; unknown keys are ignored. Anything else is a DataError that begins
/// with `where`.
SweepLine parse_sweep_line(std::string_view text, const std::string& where);

/// Reads a file of such lines. A DataError names file and line.
std::vector<SweepLine> read_sweep(const std::filesystem::path& path);

/// Sets results for a terminal: a row for each collective, backend and size.
std::string sweep_table(const std::vector<SweepLine>& lines);

}  // namespace lockstep::bench
