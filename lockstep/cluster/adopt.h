#pragma once

namespace lockstep::cluster {

/// Sets the variables of a launcher (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,
/// MASTER_PORT, TORCHELASTIC_RUN_ID, TORCHELASTIC_RESTART_COUNT) for a process that a cluster's
/// program has started as a rank, and OMP_NUM_THREADS where it is not set; otherwise it does
/// nothing. For the beginning of a program: before it has threads, and, for OMP_NUM_THREADS, before
/// LibTorch is loaded. Throws as rank_place().
void adopt_rank_place();

}  // namespace lockstep::cluster
