#include <fstream>

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>

#include "lockstep/launch/port.h"

#include "launcher_run.h"

namespace lockstep::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> shell(
    const std::string& workers, const std::string& script, std::vector<std::string> flags = {}) {
  std::vector<std::string> arguments{"run", "--nproc-per-node", workers};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  arguments.insert(arguments.end(), {"--", "sh", "-c", script});
  return arguments;
}

TEST(Launcher, RunsTheProgramOncePerRank) {
  const TemporaryFolder folder;
  const auto run =
      run_launcher({"run", "--nproc-per-node=4", "sh", "-c", "touch \"$0/$RANK\"", folder.path()});
  EXPECT_EQ(run.status.result(), 0) << run.errors;
  EXPECT_THAT(folder.names(), ElementsAre("0", "1", "2", "3"));
}

TEST(Launcher, TakesVariablesAsDefaults) {
  const auto run = run_launcher(
      {"run", "--log-line-prefix", "", "sh", "-c", "echo $WORLD_SIZE"}, {"PET_NPROC_PER_NODE=2"});
  EXPECT_EQ(run.output, "2\n2\n") << run.errors;
  const auto flag = run_launcher(
      {"run", "--nproc-per-node", "1", "sh", "-c", "echo $WORLD_SIZE"}, {"PET_NPROC_PER_NODE=2"});
  EXPECT_EQ(flag.output, "1\n") << flag.errors;
}

TEST(Launcher, GivesEachRankItsPlaceAndKeepsTheUsersOwn) {
  const std::string script =
      "echo $RANK $LOCAL_RANK $GROUP_RANK $ROLE_RANK $ROLE_NAME $WORLD_SIZE $LOCAL_WORLD_SIZE "
      "$GROUP_WORLD_SIZE $ROLE_WORLD_SIZE $MASTER_ADDR $TORCHELASTIC_RESTART_COUNT "
      "$TORCHELASTIC_MAX_RESTARTS $TORCHELASTIC_RUN_ID $TORCHELASTIC_USE_AGENT_STORE "
      "$TORCH_NCCL_ASYNC_ERROR_HANDLING $OMP_NUM_THREADS $MINE";
  const auto run = run_launcher(
      shell("2", script, {"--rdzv-id", "job", "--local-ranks-filter", "1"}), {"MINE=kept"});
  EXPECT_EQ(run.output, "1 1 0 1 default 2 2 1 2 127.0.0.1 0 0 job False 1 1 kept\n") << run.errors;
}

TEST(Launcher, NumbersTheRanksOfTheSecondNode) {
  const auto run = run_launcher(shell(
      "2", "echo $RANK $LOCAL_RANK $GROUP_RANK $WORLD_SIZE $MASTER_ADDR:$MASTER_PORT",
      {"--nnodes", "3", "--node-rank", "2", "--rdzv-endpoint", "localhost:4321",
       "--local-ranks-filter", "1"}));
  EXPECT_EQ(run.output, "5 1 2 6 localhost:4321\n") << run.errors;
}

TEST(Launcher, TwoOfThemMakeOneWorld) {
  const TemporaryFolder folder;
  const std::string port = std::to_string(launch::ReservedPort().number());
  const auto arguments = [&](const std::string& node) {
    return shell(
        "4", "touch " + folder.path("$RANK-of-$WORLD_SIZE-$MASTER_PORT"),
        {"--nnodes", "2", "--node-rank", node, "--master-addr", "127.0.0.1", "--master-port",
         port});
  };
  LauncherRun first(arguments("0"));
  LauncherRun second(arguments("1"));
  EXPECT_EQ(first.finish().status.result(), 0);
  EXPECT_EQ(second.finish().status.result(), 0);
  std::vector<std::string> expected;
  for (int rank = 0; rank < 8; ++rank) expected.push_back(std::to_string(rank) + "-of-8-" + port);
  EXPECT_EQ(folder.names(), expected);
}

TEST(Launcher, LetsRankZeroReadTheInputAndTheOthersNone) {
  const auto run = run_launcher(shell("2", "cat; echo end $RANK", {"--log-line-prefix", ""}));
  EXPECT_EQ(run.status.result(), 0);
  EXPECT_EQ(numbers_after("end", run.output).size(), 2U);
}

TEST(Launcher, NamesTheRankThatFailedAndEndsTheOthers) {
  LauncherRun running(
      shell("3", "echo pid $$; [ $RANK = 1 ] && { echo why >&2; exit 7; }; sleep 600"));
  const auto run = running.finish();
  EXPECT_EQ(run.status.code, 7);
  EXPECT_THAT(run.errors, HasSubstr("the run failed: rank 1 of 3 (host "));
  EXPECT_THAT(run.errors, HasSubstr("exited with code 7\n"));
  EXPECT_THAT(run.errors, HasSubstr("  | why\n"));
  EXPECT_TRUE(all_end(numbers_after("pid", run.output)));
}

TEST(Launcher, KillsRanksThatDoNotListenAfterAFailure) {
  const auto run = run_launcher(shell(
      "2", "[ $RANK = 1 ] && { sleep 0.2; exit 3; }; trap '' TERM; while :; do sleep 600; done"));
  EXPECT_EQ(run.status.code, 3);
}

TEST(Launcher, NamesTheSignal) {
  for (const auto& [name, code] : {std::pair{"SEGV", 139}, {"KILL", 137}, {"ABRT", 134}}) {
    const std::string script = std::string("[ $RANK = 1 ] && kill -") + name + " $$; sleep 600";
    const auto run = run_launcher(shell("2", script));
    EXPECT_EQ(run.status.code, code);
    EXPECT_THAT(run.errors, HasSubstr(std::string("rank 1 of 2")));
    EXPECT_THAT(run.errors, HasSubstr(std::string("was killed by SIG") + name));
  }
}

TEST(Launcher, TakesACodeAbove128ForACode) {
  const auto run = run_launcher(shell("1", "exit 138"));
  EXPECT_EQ(run.status.code, 138);
  EXPECT_THAT(run.errors, HasSubstr("exited with code 138"));
}

TEST(Launcher, TheEarliestFailureIsTheCause) {
  // Both end while the launcher is stopped: only the kernel knows who was first.
  LauncherRun running(shell(
      "2",
      "echo '{\"message\": \"said by '$RANK'\"}' > $TORCHELASTIC_ERROR_FILE; echo pid $$;"
      "while [ ! -e \"$0.$RANK\" ]; do sleep 0.01; done; exit $((3 + RANK))"));
  const auto pids = numbers_after("pid", running.wait_for_lines(2));
  ASSERT_EQ(pids.size(), 2U);
  running.signal(SIGSTOP);
  ::kill(pids[1], SIGKILL);
  ASSERT_TRUE(all_end({pids[1]}));
  ::kill(pids[0], SIGKILL);
  ASSERT_TRUE(all_end({pids[0]}));
  running.signal(SIGCONT);
  const auto run = running.finish();
  EXPECT_EQ(run.status.code, 137);
  const std::string first = "pid " + std::to_string(pids[1]) + ")";
  EXPECT_THAT(run.errors, HasSubstr(first));
  EXPECT_THAT(run.errors, Not(HasSubstr("pid " + std::to_string(pids[0]) + ")")));
  EXPECT_THAT(run.errors, HasSubstr("  | said by "));
}

TEST(Launcher, AnEarlyEndWithoutFailureIsFine) {
  const auto run = run_launcher(shell("2", "[ $RANK = 0 ] && exit 0; sleep 0.2; echo done"));
  EXPECT_EQ(run.status.result(), 0);
  EXPECT_EQ(run.output, "[rank 1] done\n");
}

TEST(Launcher, RefusesBeforeAnythingStarts) {
  const TemporaryFolder folder;
  std::ofstream(folder.path("file")) << "text";
  const std::string touch = "touch " + folder.path("started");
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& text) {
    const auto run = run_launcher(arguments);
    EXPECT_EQ(run.status.code, 2) << text;
    EXPECT_THAT(run.errors, HasSubstr(text));
    EXPECT_EQ(run.output, "");
  };
  refused({"run", "-np", "2", "no-such-program"}, "no-such-program");
  refused({"run", "-np", "2", "/etc/passwd"}, "/etc/passwd");
  refused(shell("2", touch, {"--log-dir", folder.path("missing")}), "missing");
  refused(shell("2", touch, {"--log-dir", folder.path("file")}), "not a folder");
  refused(shell("2", touch, {"--log-dir", folder.path()}), "not empty");
  refused(shell("2", touch, {"--tee", "0:1,"}), "--tee");
  refused(shell("two", touch), "--nproc-per-node");
  refused(shell("2", touch, {"--max-restarts", "-1"}), "--max-restarts");
  refused(
      shell("2", touch, {"--nnodes", "2", "--master-addr", "127.0.0.1", "--max-restarts", "1"}),
      "--max-restarts: a group on 2 nodes");
  refused(shell("2", touch, {"--nproc-per-nod", "1"}), "did you mean --nproc-per-node?");
  refused({"rnu"}, "did you mean run?");
  EXPECT_THAT(folder.names(), ElementsAre("file"));
}

TEST(Launcher, SaysWhenAScriptHasNoInterpreter) {
  const TemporaryFolder folder;
  std::ofstream(folder.path("script")) << "#!/no/such/shell\n";
  ASSERT_EQ(::chmod(folder.path("script").c_str(), 0755), 0);
  const auto run = run_launcher({"run", "-np", "2", folder.path("script")});
  EXPECT_EQ(run.status.code, 4);
  EXPECT_THAT(run.errors, HasSubstr("interpreter"));
}

}  // namespace
}  // namespace lockstep::testing
