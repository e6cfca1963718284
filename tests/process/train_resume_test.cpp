// Kills `lockstep train` in the middle and goes on: the end has the same bits as without.

#include <csignal>
#include <filesystem>
#include <ostream>

#include <gmock/gmock.h>

#include "tests/process/resumed_run.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

struct Way {
  std::string name;
  std::vector<std::string> words;
  int victim = 0;
};

std::ostream& operator<<(std::ostream& out, const Way& way) { return out << way.name; }

class TrainResume : public ResumedRun, public ::testing::WithParamInterface<Way> {};

// The launcher may start killed ranks again itself; of one process we do it.
TEST_P(TrainResume, EndsWithTheBitsOfARunThatWasNotKilled) {
  const Way& way = GetParam();
  const Ended whole = train(words("whole", way.words));
  ASSERT_EQ(whole.code, 0) << whole.err;
  const Ended killed = interrupt("killed", way.words, SIGKILL, way.victim, 9);
  if (killed.code != 0) {
    ASSERT_EQ(killed.code, 137) << killed.err;
    const Ended ended = go_on("killed", way.words);
    ASSERT_EQ(ended.code, 0) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("going on from"));
  }
  EXPECT_GE(summary("killed")["restarts"], 1);
  EXPECT_THAT(summary("killed")["resumed_from"].dump(), HasSubstr("snapshots/step-"));
  expect_same("whole", "killed");
}

INSTANTIATE_TEST_SUITE_P(
    Ways,
    TrainResume,
    ::testing::Values(
        Way{"Serial", {}},
        Way{"Accumulation", {"--grad-accum-steps", "2", "--clip-grad", "0.5"}},
        Way{"Bfloat16", {"--precision", "bf16-mixed"}},
        Way{"Float16", {"--precision", "16-mixed"}},
        Way{"Workers", {"--augment", "crop-flip", "--workers", "2"}},
        Way{"AveragesAndPlateau",
            {"--model-ema",
             "--model-ema-decay",
             "0.9",
             "--sched",
             "plateau",
             "--patience-epochs",
             "1",
             "--val-split",
             "0.1"}},
        // Nothing improves, so the rate falls after every evaluation but the first.
        Way{"FallingRate",
            {"--opt", "sgd", "--lr", "2e-7", "--sched", "plateau", "--patience-epochs", "0"}},
        Way{"Momentum", {"--opt", "sgd", "--sched", "cosine", "--sched-on-updates"}},
        Way{"DataParallel", {"--parallel", "dp", "--places", "2"}},
        Way{"Threads", {"--parallel", "ddp", "--places", "2"}},
        Way{"TwoRanks", {"--nproc-per-node", "2"}, 1},
        Way{"RankZero", {"--nproc-per-node", "2", "--model-ema"}, 0},
        Way{"Sharded", {"--nproc-per-node", "2", "--shard-optimizer"}, 1},
        Way{"Pipeline",
            {"--parallel", "pp", "--nproc-per-node", "2", "--chunks", "4", "--balance", "count"},
            1}),
    [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace lockstep::testing
