// A run whose weights or whose last loss are no numbers ends as diverged and leaves good snapshots.

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/train/resumable_run.h"

namespace lockstep::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kDiverged = 6;

const char* const kToy =
    "--model toy --data mock -b 8 --opt sgd --progress none --log-interval 50 ";

class Divergence : public ::testing::TestWithParam<const char*> {
 protected:
  ResumableRun toy(const std::string& flags) const {
    return ResumableRun(std::string(kToy) + GetParam() + " " + flags);
  }

  static void expect_diverged(const ResumableRun& run, const std::string& what) {
    EXPECT_THAT(run.attempt().with_code(kDiverged).err, HasSubstr(what));
    EXPECT_EQ(run.summary()["exit"], kDiverged);
    EXPECT_EQ(run.summary()["stopped_by"], "error");
    EXPECT_FALSE(std::filesystem::exists(run.file("model.safetensors")));
  }
};

// Their loss was still that of the weights before.
TEST_P(Divergence, OfTheWeightsInTheLastStepIsFound) {
  for (const std::string more : {"", " --snapshot-interval never --val-interval never"}) {
    const ResumableRun run = toy("--lr 1e60 --max-steps 1" + more);
    expect_diverged(run, "weights became infinite or NaN in epoch 1, up to step 1");
    EXPECT_THAT(run.snapshot_names(), IsEmpty());
  }
}

// The rate is small in the first epoch only.
TEST_P(Divergence, LeavesTheLastFiniteSnapshot) {
  const ResumableRun run =
      toy("--lr 1e60 --warmup-epochs 1 --warmup-lr 1e-3 --limit-train-batches 2 "
          "--epochs 2 --snapshot-interval 1steps --val-interval never");
  expect_diverged(run, "weights became infinite or NaN in epoch 2, up to step 3");
  EXPECT_THAT(run.snapshot_names(), ElementsAre("LATEST", "step-00000001", "step-00000002"));
  EXPECT_EQ(run.newest().manifest.step, 2);
}

// Of finite weights, of which no finite scores come. One in between may overflow.
TEST_P(Divergence, InTheLastEvaluationIsFound) {
  for (const std::string until :
      {"--max-steps 1", "--limit-train-batches 1 --epochs 1 --snapshot-interval none"}) {
    const ResumableRun run = toy("--lr 1e38 " + until);
    expect_diverged(run, "the loss of the last evaluation overflowed");
    EXPECT_TRUE(run.summary()["epochs"][0]["val_loss"].is_null());
    // The step of --max-steps was saved before it was evaluated.
    if (until.starts_with("--limit")) EXPECT_THAT(run.snapshot_names(), IsEmpty());
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, Divergence,
    ::testing::Values("", "--nproc-per-node 2", "--parallel pp --nproc-per-node 2"),
    [](const auto& test) {
      const std::string flags = test.param;
      if (flags.empty()) return std::string("Alone");
      return std::string(flags.starts_with("--parallel") ? "Stages" : "Replicas");
    });

}  // namespace
}  // namespace lockstep::testing
