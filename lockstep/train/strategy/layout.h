#pragma once

#include <string>
#include <vector>

#include "lockstep/train/options/options.h"
#include "lockstep/train/state/epoch_position.h"

namespace lockstep {

/// The replicas and stages that result from --parallel, ranks, places and --stages, and what
/// computes each.
struct Layout {
  int replicas = 1;
  int stages = 1;   ///< of each replica
  int workers = 1;  ///< ranks or places that share a replica's stages
  /// Ranks that the process runs as threads; 1 where the ranks are processes.
  int thread_ranks = 1;
  /// Places in which each rank computes: replicas of `dp`, stages of a pipeline in one process.
  int places = 1;
  bool stages_over_ranks = false;
  int micro_batches = 1;
  /// Layers of each stage, where that is known already, as in a resumed run. Else empty.
  std::vector<int> balance = {};

  int ranks_a_replica() const { return stages_over_ranks ? workers : 1; }
};

/// Finds the layout on this number of ranks. Throws InvalidArgument that names the flags if they
/// contradict each other or the number of ranks.
Layout plan_layout(const TrainOptions& options, int world_size);

/// Finds the layout of a rank of this group, be it of processes or of this process's threads.
Layout plan_layout_in(const TrainOptions& options, int group_size, bool of_threads);

/// Returns how a set of that many samples is cut into batches and steps; the replicas of `dp` share
/// one batch.
EpochRule epoch_rule(const TrainOptions& options, const Layout& layout, std::int64_t samples);

/// Says the layout for people: `2 replicas x 2 stages, 1F1B, 8 chunks, bubble 11 %`.
std::string describe(const TrainOptions& options, const Layout& layout);

}  // namespace lockstep
