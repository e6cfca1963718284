#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "tests/process/command.h"

#include "lockstep/core/error.h"

namespace lockstep::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// A folder with `lockstep` and a script in the place of `lockstep-train`.
class Installed {
 public:
  explicit Installed(const std::string& script, const std::string& interpreter = "/bin/sh") {
    std::filesystem::copy_file(built_lockstep(), folder_.file("lockstep"));
    std::ofstream(folder_.file("lockstep-train")) << "#!" << interpreter << "\n" << script << "\n";
    ::chmod(folder_.file("lockstep-train").c_str(), 0755);
  }

  /// Runs `lockstep train FLAGS` into the run folder.
  Ended train(const std::string& flags, const Words& variables = {}) {
    const auto arguments = words("train --output " + output() + " " + flags);
    return run_command(arguments, variables, folder_.file("lockstep"));
  }

  Ended run(const std::string& arguments) const {
    return run_command(words(arguments), {}, folder_.file("lockstep"));
  }

  std::string output() const { return file("run"); }
  std::string file(const std::string& name) const { return folder_.file(name); }

  void remove_trainer() { std::filesystem::remove(folder_.file("lockstep-train")); }

 private:
  TemporaryFolder folder_;
};

TEST(TrainVerb, BecomesTheTrainerForOneRank) {
  Installed installed("echo \"$@\" ${RANK-none} ${GOMP_SPINCOUNT-none} $GLIBC_TUNABLES; exit 3");
  const auto run = installed.train("--model toy --json --nproc-per-node 1").with_code(3);
  EXPECT_THAT(run.out, HasSubstr("--model toy --json none 2000 glibc.malloc."));
  EXPECT_EQ(run.err, "");
}

TEST(TrainVerb, LeavesOpenMPsWaitsAsTheUserHasSetThem) {
  Installed installed("echo ${GOMP_SPINCOUNT-none}");
  EXPECT_EQ(installed.train("--model toy", {"OMP_WAIT_POLICY=active"}).out, "none\n");
  EXPECT_EQ(installed.train("--model toy", {"GOMP_SPINCOUNT=5"}).out, "5\n");
}

TEST(TrainVerb, StartsRanksAndShowsRankZeroUnchanged) {
  Installed installed("printf \"bar\\r$RANK/$WORLD_SIZE $*\"");
  const auto run = installed.train("--nproc_per_node=3 --lr 0.1").with_code(0);
  EXPECT_EQ(run.out, "bar\r0/3 --output " + installed.output() + " --lr 0.1");
}

TEST(TrainVerb, StartsNoRanksInsideALauncher) {
  Installed installed("echo $RANK of $WORLD_SIZE \"$@\"");
  const auto run = installed.train("--nproc-per-node 2 --model toy", {"RANK=1", "WORLD_SIZE=2"});
  EXPECT_EQ(run.out, "1 of 2 --output " + installed.output() + " --model toy\n");
}

TEST(TrainRestart, FollowsWhatMayGoBetterNextTime) {
  for (const std::string end : {"exit 1", "exit 5", "exit 134", "kill -9 $$"}) {
    Installed installed(
        "[ $RANK = 0 ] && echo attempt $TORCHELASTIC_RESTART_COUNT; "
        "[ $TORCHELASTIC_RESTART_COUNT$RANK = 01 ] && " +
        end + "; [ $RANK = 0 ] && sleep 0.1; exit 0");
    const auto run = installed.train("--nproc-per-node 2");
    EXPECT_EQ(run.code(), 0) << end << run.err;
    EXPECT_THAT(run.err, HasSubstr("restart 1 of 3: rank 1 of 2")) << end;
  }
}

TEST(TrainRestart, DoesNotFollowWhatWouldFailAgainButShowsWhatTheRankSaid) {
  for (const int code : {2, 3, 4, 6}) {
    Installed installed(concat("echo \"rank $RANK\"; [ $RANK = 1 ] && { echo broken >&2; exit ",
        code, "; }; exec sleep 600"));
    const auto run = installed.train("--nproc-per-node 2").with_code(code);
    EXPECT_THAT(run.err, HasSubstr("not restarted")) << code;
    EXPECT_THAT(run.out, Not(HasSubstr("rank 1")));
    EXPECT_THAT(run.err, HasSubstr("rank 1 of 2"));
    EXPECT_THAT(run.err, HasSubstr("  | broken"));
  }
}

TEST(TrainRestart, WaitsForAllRanksThatStopWithASnapshot) {
  const TemporaryFolder folder;
  Installed installed(
      "[ $RANK = 0 ] && { sleep 0.3; touch " + folder.file("saved") + "; }; exit 75");
  EXPECT_THAT(installed.train("--nproc-per-node 2").with_code(75).err, Not(HasSubstr("failed")));
  EXPECT_THAT(folder.names(), ElementsAre("saved"));
}

TEST(TrainRestart, PassesOnTheOrderToSave) {
  const TemporaryFolder folder;
  Installed installed(
      "trap 'exit 75' USR1; [ $RANK = 0 ] && touch " + folder.file("ready") + "; while [ ! -e " +
      folder.file("ready") +
      " ]; do sleep 0.01; done; [ $RANK = 1 ] && kill -USR1 $PPID; while :; do sleep 0.01; done");
  const auto run = installed.train("--nproc-per-node 2").with_code(75);
  EXPECT_THAT(run.err, HasSubstr("passing SIGUSR1 on to all ranks"));
}

// Before the ranks have met, one that is stopped alone leaves the others waiting for it.
TEST(TrainRestart, StopsAllRanksWhenOneHasStopped) {
  Installed installed(
      "trap 'exit 75' TERM; [ $RANK = 1 ] && exit 75; while :; do sleep 0.01; done");
  EXPECT_THAT(installed.train("--nproc-per-node 2").with_code(75).err, Not(HasSubstr("failed")));
}

TEST(TrainRestart, TakesTheLossOfAPeerThatStoppedForAStop) {
  const TemporaryFolder folder;
  const std::string stopped = folder.file("stopped");
  Installed installed("[ $RANK = 1 ] && { echo $$ > " + stopped + "; exit 75; }; until [ -s " +
                      stopped + " ] && ! grep -q 'State:.[RSD]' /proc/$(cat " + stopped +
                      ")/status; do sleep 0.01; done; exit 5");
  EXPECT_THAT(installed.train("--nproc-per-node 2").with_code(75).err, Not(HasSubstr("failed")));
}

TEST(TrainRestart, HoldsASignalUntilTheTrainerIsThere) {
  Installed installed(  // a shell would let it in
      "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n"
      "signal.sigwait({signal.SIGTERM})\nexit(75)",
      "/usr/bin/env python3");
  EXPECT_EQ(installed.train("--nproc-per-node 1").code(), 75);
  EXPECT_EQ(installed.train("--nproc-per-node 2").code(), 75);
}

TEST(TrainRestart, AsksNoRankToSaveWhenAnotherHasDied) {
  const TemporaryFolder folder;
  Installed installed(
      "trap 'touch " + folder.file("asked") +
      "' TERM; [ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; [ $RANK = 1 ] && { sleep 0.2; exit "
      "1; }; "
      "while :; do sleep 0.01; done");
  installed.train("--nproc-per-node 2").with_code(0);
  EXPECT_THAT(folder.names(), ElementsAre());
}

TEST(TrainRestart, UsesOneFolderAndContinuesItsLogs) {
  Installed installed("echo \"$RANK: $*\"; [ $RANK = 0 ] || [ $TORCHELASTIC_RESTART_COUNT = 1 ]");
  installed.train("--nproc-per-node 2").with_code(0);
  const std::string said = "1: --output " + installed.output() + "\n";
  EXPECT_EQ(contents(installed.output() + "/logs/rank-1.log"),
      said + "lockstep: restart 1 of 3\n" + said);
}

TEST(TrainRestart, WatchesOverOneRankWhenAsked) {
  Installed installed("echo $RANK of $WORLD_SIZE; [ $TORCHELASTIC_RESTART_COUNT = 2 ]");
  EXPECT_EQ(installed.train("--max-restarts 2").with_code(0).out, "0 of 1\n0 of 1\n0 of 1\n");
}

TEST(TrainVerb, NamesTheTrainerThatIsMissing) {
  Installed installed("");
  installed.remove_trainer();
  const auto run = installed.train("--nproc-per-node 2").with_code(4);
  EXPECT_THAT(run.err, HasSubstr("./dev build lockstep-train"));
}

TEST(BenchVerbs, NameTheProgramThatIsMissing) {
  const Installed installed("");
  std::filesystem::create_directory(installed.output());
  std::ofstream(installed.output() + "/bench.json") << "{}";
  for (const std::string& line : {std::string("bench --list"), std::string("collectives --list"),
           "report " + installed.output()})
    EXPECT_THAT(installed.run(line).with_code(4).err, HasSubstr("./dev build lockstep-bench"));
}

TEST(BenchVerbs, NameTheProgramOfTheirRanksThatIsMissing) {
  const Installed installed("");
  std::filesystem::copy_file(
      std::filesystem::path(built_lockstep()).parent_path() / "lockstep-bench",
      installed.file("lockstep-bench"));
  const auto swept = installed.run("collectives").with_code(4);
  EXPECT_THAT(swept.err, HasSubstr("./dev build lockstep-collectives"));
  const auto studied = installed.run("bench collectives --output " + installed.output());
  EXPECT_EQ(studied.code(), 4);
  EXPECT_THAT(studied.err, HasSubstr("./dev build lockstep-collectives"));
  EXPECT_FALSE(std::filesystem::exists(installed.output())) << "before it begins";
}

}  // namespace
}  // namespace lockstep::testing
