#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "launcher_run.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// Is a folder with `lockstep` and a script in the place of `lockstep-train`.
class Installed {
 public:
  explicit Installed(const std::string& script) {
    std::filesystem::copy_file(built_launcher(), folder_.path("lockstep"));
    std::ofstream(folder_.path("lockstep-train")) << "#!/bin/sh\n" << script << "\n";
    ::chmod(folder_.path("lockstep-train").c_str(), 0755);
  }

  /// Runs `lockstep train` with a run folder of its own.
  Finished train(std::vector<std::string> flags, const std::vector<std::string>& variables = {}) {
    flags.insert(flags.begin(), {"train", "--output", output()});
    return run_launcher(flags, variables, folder_.path("lockstep"));
  }

  std::string output() const { return folder_.path("run"); }

  void remove_trainer() { std::filesystem::remove(folder_.path("lockstep-train")); }

 private:
  TemporaryFolder folder_;
};

TEST(TrainVerb, BecomesTheTrainerForOneRank) {
  Installed installed("echo \"$@\" ${RANK-none} $GLIBC_TUNABLES; exit 3");
  const auto run = installed.train({"--model", "toy", "--json", "--nproc-per-node", "1"});
  EXPECT_EQ(run.status.code, 3);
  EXPECT_THAT(run.output, HasSubstr("--model toy --json none glibc.malloc."));
  EXPECT_EQ(run.errors, "");
}

TEST(TrainVerb, StartsRanksAndShowsRankZeroUnchanged) {
  Installed installed("printf \"bar\\r$RANK/$WORLD_SIZE $*\"");
  const auto run = installed.train({"--nproc_per_node=3", "--lr", "0.1"});
  EXPECT_EQ(run.status.result(), 0) << run.errors;
  EXPECT_EQ(run.output, "bar\r0/3 --output " + installed.output() + " --lr 0.1");
}

TEST(TrainVerb, ShowsWhatAnotherRankSaidWhenItFailed) {
  Installed installed(
      "echo \"rank $RANK\"; [ $RANK = 1 ] && { echo broken >&2; exit 6; }; sleep 600");
  const auto run = installed.train({"--nproc-per-node", "2"});
  EXPECT_EQ(run.status.code, 6);
  EXPECT_THAT(run.output, Not(HasSubstr("rank 1")));
  EXPECT_THAT(run.errors, HasSubstr("rank 1 of 2"));
  EXPECT_THAT(run.errors, HasSubstr("  | broken"));
}

TEST(TrainVerb, StartsNoRanksInsideALauncher) {
  Installed installed("echo $RANK of $WORLD_SIZE \"$@\"");
  const auto run =
      installed.train({"--nproc-per-node", "2", "--model", "toy"}, {"RANK=1", "WORLD_SIZE=2"});
  EXPECT_EQ(run.output, "1 of 2 --output " + installed.output() + " --model toy\n");
}

TEST(TrainVerb, NamesTheTrainerThatIsMissing) {
  Installed installed("");
  installed.remove_trainer();
  const auto run = installed.train({"--nproc-per-node", "2"});
  EXPECT_EQ(run.status.code, 4);
  EXPECT_THAT(run.errors, HasSubstr("lockstep-train"));
}

}  // namespace
}  // namespace lockstep::testing
