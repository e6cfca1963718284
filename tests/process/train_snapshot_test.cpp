// Stops runs by signals and budgets, and spoils their snapshots and disks.

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include "tests/process/resumable_run.h"
#include "tests/process/train_idx_files.h"
#include "tests/train/file_size_limit.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

class TrainSnapshot : public ::testing::Test {
 protected:
  void SetUp() override { write_idx_files(data_.path(), 320, 64); }

  // Forty steps, in two epochs.
  Words flags(const Words& more = {}) const {
    Words words = {"--model",
                   "mnist-small",
                   "--data",
                   "mnist:" + data_.path(),
                   "--epochs",
                   "2",
                   "--batch-size",
                   "16",
                   "--log-interval",
                   "1",
                   "--snapshot-interval",
                   "5steps"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  // So slow that a test can act in the midst of it: thousands of steps.
  Words long_flags(const Words& more = {}) const {
    Words words = flags({"--repeat", "2000", "--epochs", "1"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  static Json summary_of(const ResumableRun& run) {
    return Json::parse(contents(run.file("summary.json")));
  }

  // Starts a life and sends it a signal once it has saved.
  static Ended signalled(const ResumableRun& run, int signal) {
    TrainCommand command = run.start();
    EXPECT_TRUE(eventually([&] { return fs::exists(run.file("snapshots/LATEST")); }))
        << contents(command.err_path());
    EXPECT_EQ(::kill(command.pid(), signal), 0);
    return command.wait();
  }

  // Leaves a run with two snapshots, killed in its midst.
  static void kill_early(const ResumableRun& run) {
    TrainCommand command = run.start();
    const auto has_two = [&] {
      const auto names = run.snapshot_names();
      return std::count_if(names.begin(), names.end(), [](const auto& name) {
               return name.starts_with("step-");
             }) == 2;
    };
    ASSERT_TRUE(eventually(has_two)) << contents(command.err_path());
    for (const pid_t process : run.processes()) ::kill(process, SIGKILL);
    EXPECT_NE(command.wait().code, 0);
    ASSERT_TRUE(eventually([&] { return run.processes().empty(); }));
  }

  TemporaryFolder data_;
};

class TrainSignal : public TrainSnapshot, public ::testing::WithParamInterface<Words> {};

TEST_P(TrainSignal, StopsARunThatThenGoesOn) {
  const ResumableRun run(long_flags(GetParam()));
  const Ended stopped = signalled(run, SIGTERM);
  EXPECT_EQ(stopped.code, 75) << stopped.err;
  const Json summary = summary_of(run);
  EXPECT_EQ(summary["stopped_by"], "signal");
  EXPECT_EQ(summary["exit"], 75);
  const auto newest = run.newest();
  EXPECT_EQ(newest.manifest.step, summary["steps"]) << "nothing is lost";
  EXPECT_TRUE(newest.refused.empty());
  const std::int64_t steps = summary["steps"];
  const Ended again = run.live({"--max-steps", std::to_string(steps + 3)});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(summary_of(run)["steps"], steps + 3);
  EXPECT_EQ(summary_of(run)["restarts"], 1);
  EXPECT_THAT(summary_of(run)["resumed_from"], HasSubstr(newest.path.filename().string()));
  EXPECT_TRUE(run.processes().empty());
}

INSTANTIATE_TEST_SUITE_P(
    EachWay, TrainSignal,
    ::testing::Values(
        Words{}, Words{"--parallel", "dp", "--places", "2"},
        Words{"--parallel", "ddp", "--places", "2"}, Words{"--nproc-per-node", "2"},
        Words{"--nproc-per-node", "2", "--parallel", "pp", "--balance", "count"}));

TEST_F(TrainSnapshot, Usr1StopsARunAsWell) {
  const ResumableRun one(long_flags()), two(long_flags({"--nproc-per-node", "2"}));
  EXPECT_EQ(signalled(one, SIGUSR1).code, 75);
  EXPECT_EQ(signalled(two, SIGUSR1).code, 75);
  EXPECT_EQ(summary_of(two)["stopped_by"], "signal");
}

// With one rank stopped no step can be finished: the second signal comes in the midst of one.
TEST_F(TrainSnapshot, ASecondSignalEndsAtOnceAndTearsNothing) {
  const ResumableRun run(long_flags({"--nproc-per-node", "2"}));
  TrainCommand command = run.start();
  ASSERT_TRUE(eventually([&] { return fs::exists(run.file("snapshots/LATEST")); }))
      << contents(command.err_path());
  ASSERT_EQ(::kill(run.rank(1), SIGSTOP), 0);
  ::kill(command.pid(), SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // sooner it is the same one
  ASSERT_FALSE(run.processes().empty()) << "one is not enough to end it";
  ::kill(command.pid(), SIGTERM);
  EXPECT_EQ(command.wait().code, 143);
  EXPECT_FALSE(run.newest().path.empty());
  EXPECT_TRUE(run.newest().refused.empty());
  EXPECT_TRUE(run.processes().empty()) << "a process was left";
}

TEST_F(TrainSnapshot, TheTimeBudgetCountsOverRestarts) {
  const ResumableRun run(long_flags());
  ASSERT_EQ(signalled(run, SIGTERM).code, 75);
  const std::int64_t steps = summary_of(run)["steps"];
  const Ended spent = run.live({"--max-time", "0.001s"});
  EXPECT_EQ(spent.code, 0) << spent.err;
  EXPECT_EQ(summary_of(run)["stopped_by"], "time");
  EXPECT_EQ(summary_of(run)["steps"], steps) << "what was spent before is spent";
  EXPECT_TRUE(summary_of(run)["test_accuracy"].is_number());
}

TEST_F(TrainSnapshot, ASpentTimeBudgetLeavesACompleteSnapshot) {
  const ResumableRun run(long_flags({"--max-time", "1s", "--snapshot-interval", "none"}));
  const Ended ended = run.live();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(summary_of(run)["stopped_by"], "time");
  EXPECT_EQ(run.newest().manifest.step, summary_of(run)["steps"]);
}

// The limit lets the model be written, not the optimizer's state, which is twice as large.
TEST_F(TrainSnapshot, AFullDiskCostsAWarningOnly) {
  const ResumableRun run(flags());
  kill_early(run);
  const auto before = run.newest();
  const FileSizeLimit limit(3 * fs::file_size(before.path / "model.safetensors") / 2);
  const Ended ended = run.live();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(
      ended.err, AllOf(HasSubstr("optimizer"), HasSubstr("File too large"), HasSubstr("snapshot")));
  EXPECT_EQ(summary_of(run)["steps"], 40);
  EXPECT_EQ(run.newest().path, before.path) << "the last good one stays";
  EXPECT_THAT(run.snapshot_names(), Each(Not(StartsWith(".step"))));
}

// No file of weights has room until the limit is lifted, nor the later metric lines of the epoch;
// in the end nothing is missing. The second epoch is long enough to lift it in, and, as nothing is
// learnt, no better than the first, whose weights only the end of training can write.
TEST_F(TrainSnapshot, ADiskThatIsFullForAWhileCostsNothing) {
  const Words words =
      flags({"--repeat", "20", "--snapshot-interval", "200steps", "--opt", "sgd", "--lr", "1e-30"});
  const ResumableRun undisturbed(words), run(words);
  ASSERT_EQ(undisturbed.live().code, 0);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  std::optional<FileSizeLimit> limit(20'000);
  TrainCommand command = run.start();
  limit.reset();
  ASSERT_TRUE(eventually([&] {
    return contents(command.err_path()).find("the weights of the best epoch wait") !=
           std::string::npos;
  })) << contents(command.err_path());
  ASSERT_EQ(::prlimit(command.pid(), RLIMIT_FSIZE, &before, nullptr), 0);
  const Ended ended = command.wait();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(run.outcome() == undisturbed.outcome());
}

TEST_F(TrainSnapshot, AFullDiskEndsARunThatRequiresSnapshots) {
  const ResumableRun run(flags());
  kill_early(run);
  const auto before = run.newest();
  const FileSizeLimit limit(3 * fs::file_size(before.path / "model.safetensors") / 2);
  const Ended ended = run.live({"--snapshot-required"});
  EXPECT_EQ(ended.code, 4) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("File too large"));
  EXPECT_EQ(run.newest().path, before.path);
}

TEST_F(TrainSnapshot, ABrokenOneIsSkippedAndNamed) {
  const ResumableRun undisturbed(flags());
  ASSERT_EQ(undisturbed.live().code, 0);
  const ResumableRun run(flags());
  kill_early(run);
  const fs::path broken = run.newest().path;
  const auto size = static_cast<std::streamoff>(fs::file_size(broken / "model.safetensors"));
  std::fstream(broken / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary)
      .seekp(size / 2)
      .put('\x55');
  ASSERT_EQ(run.newest().refused.size(), 1U);
  const Ended ended = run.live();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(
      ended.err, AllOf(HasSubstr(broken.filename().string()), HasSubstr("model.safetensors")));
  EXPECT_TRUE(run.outcome() == undisturbed.outcome());
  EXPECT_TRUE(run.newest().refused.empty()) << "it was replaced or removed";
}

TEST_F(TrainSnapshot, WithoutAnyTrainingStartsAnewAndSaysSo) {
  const ResumableRun run(flags({"--max-steps", "3"}));
  const Ended ended = run.live();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("training starts anew"));
}

TEST_F(TrainSnapshot, ANamedRunWithoutAUsableOneIsRefused) {
  const ResumableRun run(flags());
  const TemporaryFolder none;
  const Ended empty = run.live({"--resume", none.path()});
  EXPECT_EQ(empty.code, 3);
  EXPECT_THAT(empty.err, AllOf(HasSubstr("no complete snapshot"), HasSubstr(none.path())));
  const Ended missing = run.live({"--resume", none.str() + "/missing"});
  EXPECT_EQ(missing.code, 3);
  EXPECT_FALSE(fs::exists(run.output() + "/metrics.jsonl")) << "nothing was begun";
}

TEST_F(TrainSnapshot, AnotherTrainingIsRefusedWithAllDifferences) {
  const ResumableRun run(flags());
  kill_early(run);
  const Ended ended = run.live({"--lr", "0.5", "--batch-size", "8", "--nproc-per-node", "2"});
  EXPECT_EQ(ended.code, 3) << ended.err;
  EXPECT_THAT(
      ended.err, AllOf(HasSubstr("--lr:"), HasSubstr("--batch-size: the snapshot has 16, now 8")));
  write_idx_files(data_.path(), 160, 64);
  const Ended other = run.live();
  EXPECT_EQ(other.code, 3) << other.err;
  EXPECT_THAT(other.err, AllOf(HasSubstr("320"), HasSubstr("160")));
}

TEST_F(TrainSnapshot, AFolderOfARunIsNotOverwritten) {
  const ResumableRun run(flags());
  kill_early(run);
  const Ended ended = run.live({"--resume", "never"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("--resume auto"));
}

class TrainRestart : public TrainSnapshot, public ::testing::WithParamInterface<int> {};

TEST_P(TrainRestart, TheLauncherGoesOnAfterARankHasDied) {
  const ResumableRun undisturbed(flags({"--nproc-per-node", "2"}));
  ASSERT_EQ(undisturbed.live().code, 0);
  const ResumableRun run(flags({"--nproc-per-node", "2"}));
  TrainCommand command = run.start();
  ASSERT_TRUE(eventually([&] { return fs::exists(run.file("snapshots/LATEST")); }))
      << contents(command.err_path());
  const pid_t victim = run.rank(GetParam());
  ASSERT_GT(victim, 0);
  ASSERT_EQ(::kill(victim, SIGKILL), 0);
  const Ended ended = command.wait();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("rank " + std::to_string(GetParam())));
  EXPECT_EQ(summary_of(run)["restarts"], 1);
  EXPECT_TRUE(summary_of(undisturbed)["recovery_seconds"].is_null());
  ASSERT_TRUE(summary_of(run)["recovery_seconds"].is_number()) << summary_of(run);
  EXPECT_GT(summary_of(run)["recovery_seconds"], 0);
  EXPECT_TRUE(run.outcome() == undisturbed.outcome());
  EXPECT_TRUE(run.processes().empty()) << "a process was left";
}

INSTANTIATE_TEST_SUITE_P(EitherRank, TrainRestart, ::testing::Values(0, 1));

}  // namespace
}  // namespace lockstep::testing
