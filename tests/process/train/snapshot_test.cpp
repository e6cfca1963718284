// Stops runs by signals and budgets, and spoils their snapshots and disks.

#include <algorithm>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <sys/file.h>
#include <sys/resource.h>
#include <thread>

#include "tests/process/train/run_folder.h"
#include "tests/train/file_size_limit.h"

#include "lockstep/core/file_descriptor.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::json;

class TrainSnapshot : public RunFolder {
 protected:
  // Starts a run and sends it a signal once it has saved.
  static Ended signalled(const ResumableRun& run, int signal) {
    Command command = run.start();
    wait_for_snapshot(run, command);
    command.signal(signal);
    return command.wait();
  }

  // Leaves a run with two snapshots, killed in its midst.
  static void kill_early(const ResumableRun& run) {
    Command command = run.start();
    const auto has_two = [&] {
      const auto names = run.snapshot_names();
      return std::count_if(names.begin(), names.end(),
                 [](const auto& name) { return name.starts_with("step-"); }) == 2;
    };
    ASSERT_TRUE(command.wait_until(has_two));
    for (const pid_t process : run.processes()) ::kill(process, SIGKILL);
    EXPECT_NE(command.wait().code(), 0);
    ASSERT_TRUE(eventually([&] { return run.processes().empty(); }));
  }
};

class TrainSignal : public TrainSnapshot, public ::testing::WithParamInterface<std::string> {};

TEST_P(TrainSignal, StopsARunThatThenGoesOn) {
  const ResumableRun run(long_flags(GetParam()));
  signalled(run, SIGTERM).with_code(75);
  const Json summary = run.summary();
  EXPECT_EQ(summary["stopped_by"], "signal");
  EXPECT_EQ(summary["exit"], 75);
  const auto newest = run.newest();
  EXPECT_EQ(newest.manifest.step, summary["steps"]) << "nothing is lost";
  EXPECT_TRUE(newest.refused.empty());
  const std::int64_t steps = summary["steps"];
  run.complete("--max-steps " + std::to_string(steps + 3));
  EXPECT_EQ(run.summary()["steps"], steps + 3);
  EXPECT_EQ(run.summary()["restarts"], 1);
  EXPECT_THAT(run.summary()["resumed_from"], HasSubstr(newest.path.filename().string()));
  EXPECT_TRUE(run.processes().empty());
}

INSTANTIATE_TEST_SUITE_P(EachWay, TrainSignal,
    ::testing::Values(std::string(), "--parallel dp --places 2", "--parallel ddp --places 2",
        "--nproc-per-node 2", "--nproc-per-node 2 --parallel pp --balance count"));

TEST_F(TrainSnapshot, Usr1StopsARunAsWell) {
  const ResumableRun one(long_flags()), two(long_flags("--nproc-per-node 2"));
  EXPECT_EQ(signalled(one, SIGUSR1).code(), 75);
  EXPECT_EQ(signalled(two, SIGUSR1).code(), 75);
  EXPECT_EQ(two.summary()["stopped_by"], "signal");
}

// With one rank stopped no step can be finished: the second signal comes in the midst of one.
TEST_F(TrainSnapshot, ASecondSignalEndsAtOnceAndTearsNothing) {
  const ResumableRun run(long_flags("--nproc-per-node 2"));
  Command command = run.start();
  wait_for_snapshot(run, command);
  ASSERT_EQ(::kill(run.rank(1), SIGSTOP), 0);
  command.signal(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // sooner it is the same one
  ASSERT_FALSE(run.processes().empty()) << "one is not enough to end it";
  command.signal(SIGTERM);
  EXPECT_EQ(command.wait().code(), 143);
  EXPECT_FALSE(run.newest().path.empty());
  EXPECT_TRUE(run.newest().refused.empty());
  EXPECT_TRUE(run.processes().empty()) << "a process was left";
}

TEST_F(TrainSnapshot, TheTimeBudgetCountsOverRestarts) {
  const ResumableRun run(long_flags());
  ASSERT_EQ(signalled(run, SIGTERM).code(), 75);
  const std::int64_t steps = run.summary()["steps"];
  const Ended spent = run.complete("--max-time 0.001s");
  EXPECT_EQ(run.summary()["stopped_by"], "time");
  EXPECT_EQ(run.summary()["steps"], steps) << "what was spent before is spent";
  EXPECT_TRUE(run.summary()["test_accuracy"].is_number());
}

TEST_F(TrainSnapshot, ASpentTimeBudgetLeavesACompleteSnapshot) {
  const ResumableRun run(long_flags("--max-time 1s --snapshot-interval none"));
  run.complete();
  EXPECT_EQ(run.summary()["stopped_by"], "time");
  EXPECT_EQ(run.newest().manifest.step, run.summary()["steps"]);
}

// The limit lets the model be written, not the optimizer's state, which is twice as large.
TEST_F(TrainSnapshot, AFullDiskCostsAWarningUnlessSnapshotsAreRequired) {
  const ResumableRun run(flags());
  kill_early(run);
  const auto before = run.newest();
  const FileSizeLimit limit(3 * fs::file_size(before.path / "model.safetensors") / 2);
  EXPECT_THAT(run.attempt("--snapshot-required").with_code(4).err, HasSubstr("File too large"));
  EXPECT_EQ(run.newest().path, before.path);
  const Ended ended = run.complete();
  EXPECT_THAT(
      ended.err, AllOf(HasSubstr("optimizer"), HasSubstr("File too large"), HasSubstr("snapshot")));
  EXPECT_EQ(run.summary()["steps"], 40);
  EXPECT_EQ(run.newest().path, before.path) << "the last good one stays";
  EXPECT_THAT(run.snapshot_names(), Each(Not(StartsWith(".step"))));
}

// No file of weights has room until the limit is lifted, nor the later metric lines of the epoch;
// in the end nothing is missing. The second epoch is long enough to lift it in, and, as nothing is
// learnt, no better than the first, whose weights only the end of training can write.
TEST_F(TrainSnapshot, ADiskThatIsFullForAWhileCostsNothing) {
  const std::string words = flags("--repeat 20 --snapshot-interval 200steps --opt sgd --lr 1e-30");
  const ResumableRun undisturbed(words), run(words);
  undisturbed.complete();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  std::optional<FileSizeLimit> limit(20'000);
  Command command = run.start();
  limit.reset();
  ASSERT_TRUE(command.wait_until(
      [&] { return count_of("the weights of the best epoch wait", command.err()) > 0; }));
  ASSERT_EQ(::prlimit(command.pid(), RLIMIT_FSIZE, &before, nullptr), 0);
  command.wait().with_code(0);
  EXPECT_TRUE(run.outcome() == undisturbed.outcome());
}

TEST_F(TrainSnapshot, ABrokenOneIsSkippedAndNamed) {
  const ResumableRun undisturbed(flags()), run(flags());
  EXPECT_THAT(undisturbed.complete().err, HasSubstr("training starts anew"));
  kill_early(run);
  const fs::path broken = run.newest().path;
  const auto size = static_cast<std::streamoff>(fs::file_size(broken / "model.safetensors"));
  std::fstream(broken / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary)
      .seekp(size / 2)
      .put('\x55');
  ASSERT_EQ(run.newest().refused.size(), 1U);
  const Ended ended = run.complete();
  EXPECT_THAT(
      ended.err, AllOf(HasSubstr(broken.filename().string()), HasSubstr("model.safetensors")));
  EXPECT_TRUE(run.outcome() == undisturbed.outcome());
  EXPECT_TRUE(run.newest().refused.empty()) << "it was replaced or removed";
}

TEST_F(TrainSnapshot, ANamedRunWithoutAUsableOneIsRefused) {
  const ResumableRun run(flags());
  const TemporaryFolder none;
  const Ended empty = run.attempt("--resume " + none.str()).with_code(3);
  EXPECT_THAT(empty.err, AllOf(HasSubstr("no complete snapshot"), HasSubstr(none.str())));
  run.attempt("--resume " + none.str() + "/missing").with_code(3);
  EXPECT_FALSE(fs::exists(run.output() + "/metrics.jsonl")) << "nothing was begun";
}

TEST_F(TrainSnapshot, AnotherTrainingIsRefusedWithAllDifferences) {
  const ResumableRun run(flags());
  kill_early(run);
  EXPECT_THAT(run.attempt("--resume never").with_code(2).err, HasSubstr("--resume auto"));
  const Ended ended = run.attempt("--lr 0.5 --batch-size 8 --nproc-per-node 2").with_code(3);
  EXPECT_THAT(ended.err, HasSubstr("is of another training"));
  const std::string logged =
      contents_so_far(run.file("logs/rank-0.log")) + contents_so_far(run.file("logs/rank-1.log"));
  EXPECT_THAT(
      logged, AllOf(HasSubstr("--lr:"), HasSubstr("--batch-size: the snapshot has 16, now 8")));
  data_.write(160, 64);
  EXPECT_THAT(run.attempt().with_code(3).err, AllOf(HasSubstr("320"), HasSubstr("160")));
}

// As that of a host that went down, whose lease on a file server has not ended.
TEST_F(TrainSnapshot, ARestartWaitsForTheLockOfTheDead) {
  const ResumableRun run(long_flags("--nproc-per-node 2 --max-steps 400"));
  Command command = run.start();
  wait_for_snapshot(run, command);
  FileDescriptor file(::open(run.file(".lock").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(file);
  const pid_t first = run.rank(0);
  std::thread next([&] { ::flock(file.get(), LOCK_EX); });  // before any rank that comes later
  ASSERT_EQ(::kill(first, SIGKILL), 0);
  next.join();
  ASSERT_TRUE(command.wait_until([&] {
    return count_of("waiting for " + run.output(), command.err()) > 0;
  })) << "the ranks are there again";
  file = FileDescriptor();
  command.wait().with_code(0);
  EXPECT_EQ(run.summary()["steps"], 400);
  EXPECT_EQ(run.summary()["restarts"], 1);
}

class TrainRestart : public TrainSnapshot, public ::testing::WithParamInterface<int> {};

TEST_P(TrainRestart, TheLauncherGoesOnAfterARankHasDied) {
  const ResumableRun undisturbed(flags("--nproc-per-node 2"));
  undisturbed.complete();
  const ResumableRun run(flags("--nproc-per-node 2"));
  Command command = run.start();
  wait_for_snapshot(run, command);
  const pid_t victim = run.rank(GetParam());
  ASSERT_GT(victim, 0);
  ASSERT_EQ(::kill(victim, SIGKILL), 0);
  EXPECT_THAT(command.wait().with_code(0).err, HasSubstr("rank " + std::to_string(GetParam())));
  EXPECT_EQ(run.summary()["restarts"], 1);
  EXPECT_TRUE(undisturbed.summary()["recovery_seconds"].is_null());
  ASSERT_TRUE(run.summary()["recovery_seconds"].is_number()) << run.summary();
  EXPECT_GT(run.summary()["recovery_seconds"], 0);
  EXPECT_TRUE(run.outcome() == undisturbed.outcome());
  EXPECT_TRUE(run.processes().empty()) << "a process was left";
}

INSTANTIATE_TEST_SUITE_P(EitherRank, TrainRestart, ::testing::Values(0, 1));

}  // namespace
}  // namespace lockstep::testing
