#pragma once

#include <cstdint>
#include <string>

#include "lockstep/train/options/options.h"

namespace lockstep {

/// The plan of a run, as --dry-run computes it.
struct TrainPlan {
  TrainOptions options;
  int world_size = 1;
  std::int64_t parameters = 0;       ///< numbers; of a tied weight once
  std::int64_t parameter_bytes = 0;  ///< of these
  std::int64_t trained_bytes = 0;    ///< of those that are not frozen
  std::int64_t train_samples = 0;
  std::int64_t test_samples = 0;
  std::int64_t data_bytes = 0;       ///< of the images that each rank holds
  std::int64_t available_bytes = 0;  ///< of memory on this host; 0: unknown
  std::string data_remark = {};      ///< about what of a folder is not read; empty: nothing
  std::string start = {};            ///< what --pretrained and --freeze come to; empty: neither
};

/// Counts the optimizer steps of one epoch.
std::int64_t steps_an_epoch(const TrainPlan& plan);

/// Returns the least bytes that a rank needs: images, parameters, their averages, and gradients and
/// optimizer state of what is trained; of a sharded state its share.
std::int64_t bytes_a_rank(const TrainPlan& plan);

/// Writes one sentence and a table.
std::string plan_text(const TrainPlan& plan);

/// Finds out what a run would do: reads the data, makes the model, checks the folder and the
/// memory; writes nothing.
///
/// Throws what the run itself would throw; std::system_error when the memory does not suffice.
TrainPlan dry_run(const TrainOptions& options, int world_size, int local_world_size);

}  // namespace lockstep
