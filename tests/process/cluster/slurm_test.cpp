// Debian's Slurm on two hosts that are made within this machine. This needs root; a Slurm that is
// missing is a failure.

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/process/command.h"

#include "lockstep/core/environment.h"
#include "lockstep/launch/hosts/made_hosts.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Slurm : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!launch::hosts_missing().empty()) GTEST_SKIP() << launch::hosts_missing();
    ASSERT_NE(launch::find_tool("slurmctld"), "") << "apt install slurm-wlm, or ./dev test";
  }

  /// Runs a script on the first node of a cluster of its own, with its folder in OUT.
  Ended on_cluster(const std::string& script) const {
    Words all = words("hosts --count 2 -- " LOCKSTEP_SLURM_NODE);
    all.insert(all.end(), {folder_.path().string(), "bash", "-c", script});
    const std::string folder = system_variable("LOCKSTEP_BINARY_DIR");
    return run_command(all, {"PATH=" + folder + ":" + system_variable("PATH"),
                                "OUT=" + folder_.path().string(), "OMP_NUM_THREADS=1"});
  }

  std::string file(const std::string& name) const { return folder_.file(name); }

  nlohmann::json summary(const std::string& run) const {
    return nlohmann::json::parse(contents(file(run) + "/summary.json"));
  }

  /// Returns the hash of the parameters of these ranks of one host, which Gloo connects.
  std::string hash_of_one_host(int ranks) const {
    const auto run = run_command(words("train --nproc-per-node " + std::to_string(ranks) + " " +
                                       flags("host") + " --oversubscribe"),
        {"OMP_NUM_THREADS=1"});
    EXPECT_EQ(run.code(), 0) << run.err;
    return summary("host")["parameters_hash"];
  }

  std::string flags(const std::string& run) const {
    return "--model toy --data mock --max-steps 4 --val-interval never --snapshot-interval none "
           "--backend gloo --progress none --timeout 60s --output " +
           file(run);
  }

  TemporaryFolder folder_;
};

TEST_F(Slurm, StartsTheRanksThatALauncherStarts) {
  const auto run = on_cluster(
      "srun -N2 -n4 lockstep train " + flags("tasks") + " --json && " +
      "srun -N2 --ntasks-per-node=1 lockstep train --nproc-per-node 2 " + flags("launchers") +
      " && srun -N2 --ntasks-per-node=1 lockstep run --nproc-per-node 2 -- lockstep train " +
      flags("run"));
  EXPECT_EQ(run.code(), 0) << run.err;
  const std::string hash = hash_of_one_host(4);
  for (const char* name : {"tasks", "launchers", "run"}) {
    EXPECT_EQ(summary(name)["world_size"], 4) << name;
    EXPECT_EQ(summary(name)["parameters_hash"], hash) << name;
  }
}

TEST_F(Slurm, NumbersNodesForALauncher) {
  const auto run = on_cluster(
      "srun -N2 --ntasks-per-node=1 lockstep run --nproc-per-node 2 -- sh -c 'echo rank $RANK of "
      "$WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE, node $GROUP_RANK of $GROUP_WORLD_SIZE at "
      "$MASTER_ADDR:$MASTER_PORT in $TORCHELASTIC_RUN_ID'");
  EXPECT_EQ(run.code(), 0) << run.err;
  for (const char* line : {"rank 0 of 4, 0 of 2, node 0 of 2", "rank 1 of 4, 1 of 2, node 0 of 2",
           "rank 2 of 4, 0 of 2, node 1 of 2", "rank 3 of 4, 1 of 2, node 1 of 2"})
    EXPECT_THAT(run.out, HasSubstr(std::string(line) + " at host-0:15001 in slurm-1.0\n"));
}

// A program of a user, which only calls init_process_group().
TEST_F(Slurm, NumbersTheRanksOfAnyProgram) {
  const auto run = on_cluster("mkdir $OUT/nodes; srun -N2 -n2 ddp_basic --output $OUT/nodes");
  EXPECT_EQ(run.code(), 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("rank 0 of 2 (gloo)"));
  EXPECT_THAT(run.out, HasSubstr("rank 1 of 2 (gloo)"));
  EXPECT_EQ(contents(file("nodes/rank-0.safetensors")), contents(file("nodes/rank-1.safetensors")));
}

TEST_F(Slurm, RefusesWhatCannotBeMeant) {
  const auto run = on_cluster(
      "srun -N1 -n2 lockstep run -np 2 true; echo code $?; "
      "srun -N1 -n2 env RANK=0 WORLD_SIZE=2 lockstep train --model toy --data mock --max-steps 1 "
      "--timeout 5s --output $OUT/none; echo code $?; exit 0");
  EXPECT_THAT(run.err, HasSubstr("Slurm has started 2 launchers on this node"));
  EXPECT_THAT(run.err, HasSubstr("RANK is 0 of WORLD_SIZE 2, but SLURM_PROCID is 1 of"));
  EXPECT_EQ(count_of("code 2\n", run.out), 2) << run.out;
}

TEST_F(Slurm, LeftOverNumbersAreExplained) {
  const auto run = on_cluster(
      "salloc -N2 -n2 bash -c 'lockstep run echo alone; lockstep train --model toy --data mock "
      "--max-steps 1 --progress none --output $OUT/alone; srun lockstep env'");
  EXPECT_EQ(run.code(), 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("alone\n"));
  EXPECT_THAT(run.err, HasSubstr("has 2 nodes, of which only this one is used"));
  EXPECT_THAT(run.err, HasSubstr("has 2 tasks, but srun has not started this process"));
  EXPECT_EQ(summary("alone")["world_size"], 1);
  EXPECT_THAT(
      run.out, HasSubstr("rank 1 of 2 by Slurm, 0 of 1 on this node, meets at host-0:15001"));
  EXPECT_THAT(run.out, HasSubstr("node 1 of 2 by Slurm, node 0 is host-0"));
}

// Stopped as before its time is up, queued again by itself, and finished.
TEST_F(Slurm, TheExamplesJobContinuesAfterARequeue) {
  const auto run = on_cluster(
      "cd $OUT && export RANKS_PER_NODE=2 && job=$(sbatch --parsable " LOCKSTEP_EXAMPLE_JOB
      " --model toy --data mock --epochs 1000000 --max-time 4s --val-interval never --log-interval "
      "1 --snapshot-interval none --progress none) && echo job $job && until [ -s "
      "runs/slurm-$job/metrics.jsonl ]; do sleep 0.1; done; scancel --batch --signal=USR1 $job; "
      "while [ -n \"$(squeue --noheader)\" ]; do sleep 0.2; done; cat slurm-$job.out");
  EXPECT_EQ(run.code(), 0) << run.err;
  const auto ended = summary("runs/slurm-1");
  EXPECT_EQ(ended["stopped_by"], "time") << run.out << run.err;
  EXPECT_EQ(ended["world_size"], 4);
  EXPECT_FALSE(ended["resumed_from"].is_null()) << run.out;
  EXPECT_THAT(run.out, Not(HasSubstr("the run failed")));
}

}  // namespace
}  // namespace lockstep::testing
