#pragma once

#include <functional>
#include <lockstep/lockstep.h>
#include <map>
#include <string>
#include <vector>

#include "flags.h"

/// Returns the flags that say how the ranks of a demo are started, added to others.
inline std::map<std::string, std::string> rank_flags(std::map<std::string, std::string> others) {
  others.insert({{"spawn", "0"}, {"init-method", "env://"}, {"rank", "-1"}, {"world-size", "-1"}});
  return others;
}

/// Runs the body on every rank: on threads of this process with --spawn N, otherwise as the single
/// rank that the launcher or the other three flags make of this process. Without any of these it is
/// a world of one.
inline void on_ranks(
    const Flags& flags, const std::function<void(const lockstep::ProcessGroup&)>& body) {
  const auto threads = static_cast<int>(flags.number("spawn", 0));
  if (threads > 0) return lockstep::run_ranks(threads, body);
  lockstep::InitOptions options{.init_method = flags.text("init-method")};
  const auto rank = static_cast<int>(flags.number("rank", -1));
  const auto world_size = static_cast<int>(flags.number("world-size", -1));
  if (rank >= 0) options.rank = rank;
  if (world_size >= 0) options.world_size = world_size;
  body(lockstep::init_process_group(options));
}

/// Returns the places of a rank. Ranks that are threads divide the cores of their process; a rank
/// that is a process has the cores that its launcher gave it.
inline std::vector<lockstep::Place> own_places(const lockstep::ProcessGroup& world, int count) {
  if (world.backend_name() != "threads") return lockstep::cpu_places(count);
  const auto all = lockstep::cpu_places(world.size() * count);
  const auto first = all.begin() + world.rank() * count;
  return {first, first + count};
}
