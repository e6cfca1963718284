// Debian's Open MPI starts the ranks; one that is missing is a failure.

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/process/command.h"

#include "lockstep/core/environment.h"
#include "lockstep/launch/hosts/made_hosts.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

class Mpirun : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(launch::find_tool("mpirun"), "") << "apt install openmpi-bin, or ./dev test";
  }

  static std::string program(const std::string& name) {
    return system_variable("LOCKSTEP_BINARY_DIR") + "/" + name;
  }

  static Words variables() {
    return {"OMP_NUM_THREADS=1", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
        "OMPI_MCA_plm=isolated", "OMPI_MCA_rmaps_base_oversubscribe=1"};
  }

  static Ended mpirun(const std::string& line) {
    return run_command(words(line), variables(), launch::find_tool("mpirun"));
  }

  std::string flags(const std::string& run) const {
    return "--model toy --data mock --max-steps 4 --val-interval never --snapshot-interval none "
           "--progress none --timeout 60s --output " +
           folder_.file(run);
  }

  std::string hash_of(const std::string& run) const {
    const auto summary = nlohmann::json::parse(contents(folder_.file(run) + "/summary.json"));
    EXPECT_EQ(summary["world_size"], 2);
    return summary["parameters_hash"];
  }

  TemporaryFolder folder_;
};

TEST_F(Mpirun, StartsTheRanksThatALauncherStarts) {
  mpirun("-n 2 " + program("lockstep") + " train " + flags("mpirun")).with_code(0);
  run_command(words("train --nproc-per-node 2 " + flags("us")), variables()).with_code(0);
  EXPECT_EQ(hash_of("mpirun"), hash_of("us"));
}

TEST_F(Mpirun, NumbersTheRanksOfAnyProgram) {
  const auto run = mpirun("-n 2 " + program("ddp_basic") + " --output " + folder_.path().string());
  EXPECT_EQ(run.code(), 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("rank 0 of 2 (shm)"));
  EXPECT_THAT(run.out, HasSubstr("rank 1 of 2 (shm)"));
}

TEST_F(Mpirun, RunsTheExamplesScript) {
  // By a shell: a second PATH among our variables would not be seen.
  const std::string line = "PATH=" + program("") + ":$PATH; exec " LOCKSTEP_EXAMPLE_MPIRUN " 2 ";
  run_command({"-c", line + flags("example")}, variables(), "/bin/bash").with_code(0);
  EXPECT_NE(hash_of("example"), "");
}

TEST_F(Mpirun, SeveralLaunchersOnAHostAreRefused) {
  const auto run = mpirun("-n 2 " + program("lockstep") + " run -np 2 true").with_code(2);
  EXPECT_THAT(run.err, HasSubstr("Open MPI has started 2 launchers on this node"));
}

TEST_F(Mpirun, ANumberThatDiffersIsRefusedWithBoth) {
  const auto run =
      mpirun("-n 2 -x RANK=1 -x WORLD_SIZE=2 " + program("lockstep") + " train " + flags("none"));
  EXPECT_EQ(run.code(), 2);
  EXPECT_THAT(run.err, HasSubstr("RANK is 1 of WORLD_SIZE 2, but OMPI_COMM_WORLD_RANK is 0 of "));
}

}  // namespace
}  // namespace lockstep::testing
