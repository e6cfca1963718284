// Stops `lockstep train` by SIGTERM in each phase of a run: code 75, soon, and the next start goes
// on as if nothing had been.

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <gmock/gmock.h>

#include "tests/process/train/resumable_run.h"

#include "lockstep/core/error.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

struct StopWay {
  std::string name;
  std::string flags;
  int ranks = 1;
  bool by_run = false;  // the ranks are started by `lockstep run`
};

std::ostream& operator<<(std::ostream& out, const StopWay& way) { return out << way.name; }

const StopWay kOneRank{"OneRank", ""};
const StopWay kDdp{"Ddp", "--parallel ddp", 2};
const StopWay kPipeline{"Pipeline", "--parallel pp --balance count", 2};
const StopWay kDdpByRun{"DdpByRun", "--parallel ddp", 2, true};

class StopPhase : public ::testing::TestWithParam<StopWay> {
 protected:
  /// Returns the flags of two short epochs with evaluations that take much longer than a signal.
  std::string flags() const {
    std::string flags = data_.flag() +
                        " --batch-size 2 --epochs 2 --limit-train-batches 3 --log-interval 1 "
                        "--seed 3 --snapshot-interval " +
                        snapshots_ + " " + GetParam().flags;
    if (GetParam().ranks > 1 && !GetParam().by_run) flags += " --nproc-per-node 2";
    return flags;
  }

  Command start(const ResumableRun& run) const {
    const std::string train = "train " + flags() + " --output " + run.output() + " --resume auto";
    const std::string by_run = "run --nproc-per-node 2 -- " + built_lockstep() + " ";
    // Idle threads of a small model would take the cores from each other.
    return Command(words(GetParam().by_run ? by_run + train : train), {"OMP_NUM_THREADS=1"});
  }

  /// Sends SIGTERM to the command in that phase, and expects that all of it stops.
  Ended stopped(const ResumableRun& run, const std::function<bool()>& is_there) const {
    Command command = start(run);
    command.wait_until(is_there);
    return stopped(run, command);
  }

  Ended stopped(const ResumableRun& run, Command& command) const {
    command.signal(SIGTERM);
    const Ended ended = command.wait().with_code(75);
    EXPECT_EQ(count_of("stopped by a signal; start it again", ended.err), 1) << ended.err;
    EXPECT_TRUE(run.processes().empty()) << "a process was left";
    EXPECT_TRUE(run.newest().refused.empty());
    return ended;
  }

  void complete(const ResumableRun& run) const { start(run).wait().with_code(0); }

  IdxFiles data_{64, 16000};
  std::string snapshots_ = "none";
};

// Whether a rank reads a file of the data set in this moment.
bool reads(const ResumableRun& run, const std::string& folder) {
  for (const pid_t process : run.processes()) {
    std::error_code gone;
    for (const auto& entry : fs::directory_iterator(concat("/proc/", process, "/fd"), gone))
      if (fs::read_symlink(entry.path(), gone).string().starts_with(folder)) return true;
  }
  return false;
}

TEST_P(StopPhase, BeforeTheTrainerIsLoaded) {
  const ResumableRun run(flags());
  stopped(run, [&] { return run.rank(GetParam().ranks - 1) > 0; });
  EXPECT_FALSE(fs::exists(run.file("metrics.jsonl")));
}

// A few milliseconds: a run in which the test did not see them is another try.
TEST_P(StopPhase, WhileItLoadsTheData) {
  const std::string folder = fs::path(data_.file("x")).parent_path();
  for (int tries = 0; tries < 20; ++tries) {
    const ResumableRun run(flags());
    Command command = start(run);
    if (!command.meets([&] { return reads(run, folder); })) continue;
    stopped(run, command);
    EXPECT_FALSE(fs::exists(run.file("snapshots")));
    return;
  }
  FAIL() << "no run was seen loading its data";
}

TEST_P(StopPhase, AboutItsFirstStep) {
  const ResumableRun run(flags());
  stopped(run, [&] { return fs::exists(run.file("config.toml")); });
}

TEST_P(StopPhase, InEachEvaluation) {
  const ResumableRun whole(flags()), run(flags());
  complete(whole);
  for (const std::size_t lines : {3U, 7U}) {
    stopped(run, [&] { return run.lines() >= lines; });
    EXPECT_EQ(run.lines(), lines) << "nothing is known of an evaluation that is abandoned";
    EXPECT_EQ(run.summary()["stopped_by"], "signal");
    EXPECT_EQ(run.newest().manifest.step, run.summary()["steps"]);
  }
  complete(run);
  EXPECT_EQ(run.lines(), whole.lines()) << "each line once";
  expect_same(whole.outcome(), run.outcome());
}

INSTANTIATE_TEST_SUITE_P(EachWay, StopPhase,
    ::testing::Values(kOneRank, kDdp, kPipeline, kDdpByRun),
    [](const auto& way) { return way.param.name; });

using StopWhileSaving = StopPhase;

TEST_P(StopWhileSaving, CompletesTheSnapshot) {
  snapshots_ = "1steps";
  const ResumableRun run(flags());
  const auto is_saving = [&] {
    const auto names = run.snapshot_names();
    return std::any_of(
        names.begin(), names.end(), [](const auto& name) { return name.starts_with(".step-"); });
  };
  stopped(run, is_saving);
  EXPECT_EQ(run.newest().manifest.step, run.summary()["steps"]);
  for (const std::string& name : run.snapshot_names())
    EXPECT_FALSE(name.starts_with('.')) << name << " was left";
}

INSTANTIATE_TEST_SUITE_P(EachWay, StopWhileSaving, ::testing::Values(kOneRank, kDdp, kPipeline),
    [](const auto& way) { return way.param.name; });

using StopRestart = StopPhase;

// The launcher is stopped while it ends the other rank, or starts both again, or they load.
TEST_P(StopRestart, IsAStopLikeAnyOther) {
  snapshots_ = "1steps";
  const ResumableRun run(flags());
  Command command = start(run);
  command.wait_until([&] { return run.lines() >= 3; });
  ASSERT_EQ(::kill(run.rank(1), SIGKILL), 0);
  command.wait_until(
      [&] { return command.err().find("was killed by SIGKILL") != std::string::npos; });
  command.signal(SIGTERM);
  command.wait().with_code(75);
  EXPECT_TRUE(run.processes().empty());
  EXPECT_FALSE(run.newest().path.empty());
  complete(run);
}

INSTANTIATE_TEST_SUITE_P(
    EachWay, StopRestart, ::testing::Values(kDdp), [](const auto& way) { return way.param.name; });

// Only one rank has the signal, before the ranks have met: the launcher stops the others.
TEST_P(StopRestart, OfOneRankBeforeTheyHaveMetStopsAll) {
  const ResumableRun run(flags());
  Command command = start(run);
  command.wait_until([&] { return run.rank(1) > 0; });
  ::kill(run.rank(1), SIGTERM);
  EXPECT_THAT(command.wait().with_code(75).err, ::testing::Not(HasSubstr("failed")));
  EXPECT_TRUE(run.processes().empty());
}

}  // namespace
}  // namespace lockstep::testing
