#include "lockstep/cluster/adopt.h"

#include <algorithm>
#include <stdlib.h>
#include <string>

#include "lockstep/cluster/place.h"
#include "lockstep/core/error.h"

namespace lockstep::cluster {
namespace {

template <typename Value>
void set(const char* name, const Value& value) {
  ::setenv(name, concat(value).c_str(), 1);
}

}  // namespace

void adopt_rank_place() {
  const auto place = rank_place(surroundings_of_this_process());
  if (!place) return;
  set("RANK", place->rank);
  set("WORLD_SIZE", place->size);
  set("LOCAL_RANK", place->local_rank);
  if (place->local_size > 0) set("LOCAL_WORLD_SIZE", place->local_size);
  set("MASTER_ADDR", place->master_address);
  set("MASTER_PORT", place->master_port);
  set("TORCHELASTIC_RUN_ID", place->job.empty() ? "none" : place->job);
  ::setenv("TORCHELASTIC_RESTART_COUNT", concat(place->restarts).c_str(), 0);
  // A launcher does the same: ranks of one node that each use all cores slow one another down.
  if (place->local_size != 1)
    ::setenv("OMP_NUM_THREADS", concat(std::max(1, place->cpus)).c_str(), 0);
}

}  // namespace lockstep::cluster
