#include <fstream>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>

#include "tests/process/command.h"

#include "lockstep/net/endpoint.h"

namespace lockstep::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Launcher, TakesVariablesAsDefaults) {
  const auto run = run_command(
      {"run", "--log-line-prefix", "", "sh", "-c", "echo $WORLD_SIZE"}, {"PET_NPROC_PER_NODE=2"});
  EXPECT_EQ(run.out, "2\n2\n") << run.err;
  const auto flag = run_command(
      {"run", "--nproc-per-node", "1", "sh", "-c", "echo $WORLD_SIZE"}, {"PET_NPROC_PER_NODE=2"});
  EXPECT_EQ(flag.out, "1\n") << flag.err;
}

TEST(Launcher, GivesEachRankItsPlaceAndKeepsTheUsersOwn) {
  const std::string script =
      "echo $RANK $LOCAL_RANK $GROUP_RANK $ROLE_RANK $ROLE_NAME $WORLD_SIZE $LOCAL_WORLD_SIZE "
      "$GROUP_WORLD_SIZE $ROLE_WORLD_SIZE $MASTER_ADDR $TORCHELASTIC_RESTART_COUNT "
      "$TORCHELASTIC_MAX_RESTARTS $TORCHELASTIC_RUN_ID $TORCHELASTIC_USE_AGENT_STORE "
      "$TORCH_NCCL_ASYNC_ERROR_HANDLING $OMP_NUM_THREADS $MINE";
  const auto run =
      run_command(shell_ranks(script, "--rdzv-id job --local-ranks-filter 1"), {"MINE=kept"});
  EXPECT_EQ(run.out, "1 1 0 1 default 2 2 1 2 127.0.0.1 0 0 job False 1 1 kept\n") << run.err;
}

TEST(Launcher, NumbersTheRanksOfTheSecondNode) {
  const auto run = run_command(
      shell_ranks("echo $RANK $LOCAL_RANK $GROUP_RANK $WORLD_SIZE $MASTER_ADDR:$MASTER_PORT",
          "--nnodes 3 --node-rank 2 --rdzv-endpoint localhost:4321 --local-ranks-filter 1"));
  EXPECT_EQ(run.out, "5 1 2 6 localhost:4321\n") << run.err;
}

TEST(Launcher, TwoOfThemMakeOneWorld) {
  const TemporaryFolder folder;
  const std::string port = std::to_string(net::ReservedPort().number());
  const auto arguments = [&](const std::string& node) {
    return shell_ranks("touch " + folder.file("$RANK-of-$WORLD_SIZE-$MASTER_PORT"),
        "--nnodes 2 --node-rank " + node + " --master-addr 127.0.0.1 --master-port " + port, "4");
  };
  Command first(arguments("0"));
  Command second(arguments("1"));
  EXPECT_EQ(first.wait().code(), 0);
  EXPECT_EQ(second.wait().code(), 0);
  std::vector<std::string> expected;
  for (int rank = 0; rank < 8; ++rank) expected.push_back(std::to_string(rank) + "-of-8-" + port);
  EXPECT_EQ(folder.names(), expected);
}

TEST(Launcher, LetsRankZeroReadTheInputAndTheOthersNone) {
  const auto run = run_command(shell_ranks("cat; echo end $RANK")).with_code(0);
  EXPECT_EQ(numbers_after("end", run.out).size(), 2U);
}

TEST(Launcher, NamesTheRankThatFailedAndHowAndEndsTheOthers) {
  struct End {
    std::string by;
    int code;
    std::string how;
  };
  for (const auto& [by, code, how] :
      {End{"exit 7", 7, "exited with code 7"}, {"exit 138", 138, "exited with code 138"},
          {"kill -SEGV $$", 139, "killed by SIGSEGV"}, {"kill -KILL $$", 137, "killed by SIGKILL"},
          {"kill -ABRT $$", 134, "killed by SIGABRT"}}) {
    const auto run = run_command(shell_ranks(
        "echo pid $$; [ $RANK = 1 ] && { echo why >&2; " + by + "; }; sleep 600", "", "3"));
    EXPECT_EQ(run.status.code, code) << by;
    EXPECT_THAT(run.err, HasSubstr("the run failed: rank 1 of 3 (host "));
    EXPECT_THAT(run.err, HasSubstr(how));
    EXPECT_THAT(run.err, HasSubstr("  | why\n"));
    EXPECT_TRUE(all_end(numbers_after("pid", run.out)));
  }
}

TEST(Launcher, KillsRanksThatDoNotListenAfterAFailure) {
  run_command(
      shell_ranks(
          "[ $RANK = 1 ] && { sleep 0.2; exit 3; }; trap '' TERM; while :; do sleep 600; done"))
      .with_code(3);
}

TEST(Launcher, TheEarliestFailureIsTheCause) {
  // Both end while the launcher is stopped: only the kernel knows who was first.
  Command running(
      shell_ranks("echo '{\"message\": \"said by '$$'\"}' > $TORCHELASTIC_ERROR_FILE; echo pid $$;"
                  "while [ ! -e \"$0.$RANK\" ]; do sleep 0.01; done; exit $((3 + RANK))"));
  const auto pids = numbers_after("pid", running.wait_for_lines(2));
  ASSERT_EQ(pids.size(), 2U);
  running.signal(SIGSTOP);
  ::kill(pids[1], SIGKILL);
  ASSERT_TRUE(all_end({pids[1]}));
  ::kill(pids[0], SIGKILL);
  ASSERT_TRUE(all_end({pids[0]}));
  running.signal(SIGCONT);
  const auto run = running.wait();
  EXPECT_EQ(run.status.code, 137);
  const std::string first = std::to_string(pids[1]);
  EXPECT_THAT(run.err, HasSubstr("pid " + first + ")"));
  EXPECT_THAT(run.err, Not(HasSubstr("pid " + std::to_string(pids[0]) + ")")));
  EXPECT_THAT(run.err, HasSubstr("(signal 9): said by " + first + "\n"));
}

TEST(Launcher, AnEarlyEndWithoutFailureIsFine) {
  const auto run = run_command(shell_ranks("[ $RANK = 0 ] && exit 0; sleep 0.2; echo done"));
  EXPECT_EQ(run.code(), 0);
  EXPECT_EQ(run.out, "[rank 1] done\n");
}

TEST(Launcher, RefusesBeforeAnythingStarts) {
  const TemporaryFolder folder;
  std::ofstream(folder.file("file")) << "text";
  const std::string touch = "touch " + folder.file("started");
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& text) {
    const auto run = run_command(arguments);
    EXPECT_EQ(run.status.code, 2) << text;
    EXPECT_THAT(run.err, HasSubstr(text));
    EXPECT_EQ(run.out, "");
  };
  refused({"run", "-np", "2", "no-such-program"}, "no-such-program");
  refused({"run", "-np", "2", "/etc/passwd"}, "/etc/passwd");
  refused(shell_ranks(touch, "--log-dir " + folder.file("file") + "/logs"), "cannot make");
  refused(shell_ranks(touch, "--log-dir " + folder.file("file")), "not a folder");
  refused(shell_ranks(touch, "--log-dir " + folder.str()), "not empty");
  refused(shell_ranks(touch, "--tee 0:1,"), "--tee");
  refused(shell_ranks(touch, "", "two"), "--nproc-per-node");
  refused(shell_ranks(touch, "--max-restarts -1"), "--max-restarts");
  refused(shell_ranks(touch, "--nnodes 2 --master-addr 127.0.0.1 --max-restarts 1"),
      "--max-restarts: a group on 2 nodes");
  refused(shell_ranks(touch, "--nproc-per-nod 1"), "did you mean --nproc-per-node?");
  refused({"rnu"}, "did you mean run?");
  EXPECT_THAT(folder.names(), ElementsAre("file"));
}

TEST(Launcher, SaysWhenAScriptHasNoInterpreter) {
  const TemporaryFolder folder;
  std::ofstream(folder.file("script")) << "#!/no/such/shell\n";
  ASSERT_EQ(::chmod(folder.file("script").c_str(), 0755), 0);
  const auto run = run_command({"run", "-np", "2", folder.file("script")}).with_code(4);
  EXPECT_THAT(run.err, HasSubstr("interpreter"));
}

// What a shell, a service manager or a user's script may hand down to a launcher.

TEST(LauncherInherits, ClosedStandardStreams) {
  const TemporaryFolder folder;
  for (const std::string closed : kClosedStreams) {
    for (const std::string ranks : {"1", "2"}) {
      const auto run = run_through_shell(
          closed, shell_ranks("echo out; echo err >&2; touch " + folder.file("$RANK"), "", ranks));
      EXPECT_EQ(run.code(), 0) << closed << run.err;
      EXPECT_EQ(std::to_string(folder.names().size()), ranks) << closed;
    }
    for (const std::string& name : folder.names())
      ASSERT_TRUE(remove(folder.file(name).c_str()) == 0);
  }
}

TEST(LauncherInherits, AnIgnoredChildSignal) {
  const std::string ignoring = "trap '' CHLD; ";
  run_through_shell("", shell_ranks("exit 0"), ignoring).with_code(0);
  run_through_shell("", shell_ranks("exit 7"), ignoring).with_code(7);
  const auto heirs =
      run_through_shell("", shell_ranks("grep SigIgn /proc/$$/status", "", "1"), ignoring);
  EXPECT_THAT(heirs.out, HasSubstr("SigIgn:\t0000000000000000"));
}

}  // namespace
}  // namespace lockstep::testing
