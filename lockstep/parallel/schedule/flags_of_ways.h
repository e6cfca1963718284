#pragma once

#include <array>
#include <string_view>

namespace lockstep {

/// A flag of `lockstep train` that only some ways of spreading take.
struct FlagOfWays {
  std::string_view flag;
  std::array<std::string_view, 7> ways;  ///< as --parallel takes them
};

inline constexpr std::array kFlagsOfWays{FlagOfWays{"--sync-batch-norm", {"ddp", "fsdp"}},
    FlagOfWays{"--bucket-mb", {"ddp"}}, FlagOfWays{"--comm-hook", {"ddp", "fsdp"}},
    FlagOfWays{"--shard-optimizer", {"ddp", "ddp+mp", "ddp+pp"}}, FlagOfWays{"--reshard", {"fsdp"}},
    FlagOfWays{"--replicas", {"fsdp"}}, FlagOfWays{"--chunks", {"pp", "ddp+pp"}},
    FlagOfWays{"--schedule", {"pp", "ddp+pp"}},
    FlagOfWays{"--stages", {"mp", "pp", "ddp+mp", "ddp+pp"}},
    FlagOfWays{"--balance", {"mp", "pp", "ddp+mp", "ddp+pp"}},
    FlagOfWays{"--checkpoint", {"serial", "ddp", "fsdp", "mp", "pp", "ddp+mp", "ddp+pp"}},
    FlagOfWays{"--deferred-batch-norm", {"mp", "pp", "ddp+mp", "ddp+pp"}}};

/// Returns whether a way, as --parallel takes it, has the flag; flags that are not in the table are
/// for all ways.
constexpr bool takes_flag(std::string_view way, std::string_view flag) {
  for (const FlagOfWays& each : kFlagsOfWays) {
    if (each.flag != flag) continue;
    for (const std::string_view own : each.ways)
      if (own == way) return true;
    return false;
  }
  return true;
}

}  // namespace lockstep
