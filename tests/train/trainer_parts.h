#pragma once

#include <cstdint>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

#include "lockstep/train/train_run.h"

namespace lockstep::testing {

/// Returns a run of `toy` on the mock data: 234 batches of 128 an epoch, of which `batches` are
/// taken.
inline TrainOptions toy_options(const TemporaryFolder& folder, std::int64_t batches) {
  TrainOptions options;
  options.model = "toy";
  options.data.name = "mock";
  options.limit_train_batches = batches;
  options.progress = ProgressStyle::kNone;
  options.snapshots = {.unit = SnapshotUnit::kSteps, .count = 2};
  options.output = folder.str() + "/run";
  return options;
}

/// A run on one rank, of which a test takes a part.
class TrainerParts : public ::testing::Test {
 protected:
  TrainRun begin(std::int64_t batches) { return begin(toy_options(folder_, batches)); }
  TrainRun begin(const TrainOptions& options) { return {options, ProcessGroup(), {"test"}}; }

  TemporaryFolder folder_;
};

}  // namespace lockstep::testing
