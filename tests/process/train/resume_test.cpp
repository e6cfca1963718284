// Kills `lockstep train` in the middle and goes on: the end has the same bits as without.

#include <csignal>
#include <gmock/gmock.h>
#include <ostream>

#include "tests/process/train/resumable_run.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

struct Way {
  std::string name;
  std::string flags;
  int victim = 0;
  bool skips_steps = false;
};

// Few processors compute convolutions in half precision themselves; without them steps are short,
// and most of the time would be spent waiting for the disk.
std::string half_precision(const std::string& flags) {
  return flags +
         " --model toy --data mock --limit-train-batches 26 --epochs 10 --snapshot-interval "
         "17steps";
}

std::ostream& operator<<(std::ostream& out, const Way& way) { return out << way.name; }

class TrainResume : public ShortRuns, public ::testing::WithParamInterface<Way> {};

// The launcher may start killed ranks again itself; of one process we do it.
TEST_P(TrainResume, EndsWithTheBitsOfARunThatWasNotKilled) {
  const Way& way = GetParam();
  const ResumableRun whole(flags(way.flags)), killed(flags(way.flags));
  whole.complete();
  const Ended first = killed.interrupted(SIGKILL, way.victim, 9);
  if (first.code() != 0) {
    ASSERT_EQ(first.code(), 137) << first.err;
    EXPECT_THAT(killed.complete().err, HasSubstr("going on from"));
  }
  EXPECT_GE(killed.summary()["restarts"], 1);
  EXPECT_THAT(killed.summary()["resumed_from"].dump(), HasSubstr("snapshots/step-"));
  expect_same(whole.outcome(), killed.outcome());
  if (way.skips_steps) {
    EXPECT_GT(whole.summary()["skipped_steps"], 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, TrainResume,
    ::testing::Values(Way{"Serial", ""},
        Way{"Accumulation", "--grad-accum-steps 2 --clip-grad 0.5"},
        Way{"Bfloat16", half_precision("--precision bf16-mixed")},
        // The first gradients overflow, so the scale that is restored is not the one to begin with.
        Way{"Float16", half_precision("--precision 16-mixed --lr 1"), 0, true},
        Way{"Workers", "--augment crop-flip --workers 2"},
        Way{"AveragesAndPlateau",
            "--model-ema --model-ema-decay 0.9 --sched plateau --patience-epochs 1 --val-split "
            "0.1"},
        // Nothing improves, so the rate falls after every evaluation but the first.
        Way{"FallingRate", "--opt sgd --lr 2e-7 --sched plateau --patience-epochs 0"},
        Way{"Momentum", "--opt sgd --sched cosine --sched-on-updates"},
        Way{"DataParallel", "--parallel dp --places 2"},
        Way{"Threads", "--parallel ddp --places 2"}, Way{"TwoRanks", "--nproc-per-node 2", 1},
        Way{"RankZero", "--nproc-per-node 2 --model-ema", 0},
        Way{"Sharded", "--nproc-per-node 2 --shard-optimizer", 1},
        Way{"FullySharded", "--parallel fsdp --nproc-per-node 2 --model-ema --clip-grad 0.5", 1},
        Way{"FullyShardedThreads",
            "--parallel fsdp --places 2 --reshard never --grad-accum-steps 2"},
        Way{"Pipeline", "--parallel pp --nproc-per-node 2 --chunks 4 --balance count", 1}),
    [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace lockstep::testing
