#include "lockstep/comm/forgotten_init.h"

#include <atomic>
#include <cstdio>
#include <string>

#include "lockstep/cluster/place.h"
#include "lockstep/core/environment.h"
#include "lockstep/core/error.h"
#include "lockstep/core/text.h"

namespace lockstep {
namespace {

std::atomic<bool> settled = false;

/// Returns the name of the launcher that started this process as one of several ranks; empty if
/// none.
std::string starter_of_ranks() {
  const std::string size = system_variable("WORLD_SIZE");
  if (parse_number<int>(size).value_or(1) > 1) return concat("WORLD_SIZE is ", size);
  try {
    const auto place = cluster::rank_place(cluster::surroundings_of_this_process());
    if (place) return concat(place->source, " has started ", place->size, " ranks");
  } catch (const InvalidArgument&) {  // init_process_group() would say it
  }
  return "";
}

}  // namespace

void note_init() { settled = true; }

void warn_if_init_is_forgotten() {
  if (settled || settled.exchange(true)) return;
  const std::string starter = starter_of_ranks();
  if (starter.empty()) return;
  std::fprintf(stderr,
      "lockstep: %s, but this process uses a group of one: every rank works alone. "
      "Write `auto world = lockstep::init_process_group();` in place of a default-constructed "
      "ProcessGroup, or start one process.\n",
      starter.c_str());
}

}  // namespace lockstep
