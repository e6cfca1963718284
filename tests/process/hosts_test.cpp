// Hosts that are made within this machine, with real processes and sockets. This needs root.

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <signal.h>

#include "lockstep/launch/hosts/available.h"

#include "launcher_run.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;
using ::testing::Not;

class MadeHosts : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!launch::hosts_missing().empty()) GTEST_SKIP() << launch::hosts_missing();
  }

  static std::vector<std::string> hosts(
      std::vector<std::string> flags, const std::vector<std::string>& command) {
    flags.insert(flags.begin(), "hosts");
    flags.emplace_back("--");
    flags.insert(flags.end(), command.begin(), command.end());
    return flags;
  }

  /// Makes two hosts that run a script.
  static std::vector<std::string> two(
      const std::string& script, std::vector<std::string> flags = {}) {
    flags.insert(flags.begin(), {"--count", "2"});
    return hosts(std::move(flags), {"sh", "-c", script});
  }
};

/// Lists the processes of this machine that have a variable in their environment.
std::vector<pid_t> processes_with(const std::string& variable) {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "environ", std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    const bool has = ("\0" + text.str()).find(variable) != std::string::npos;
    if (has) found.push_back(static_cast<pid_t>(std::stoi(name)));
  }
  return found;
}

TEST_F(MadeHosts, AreToldTheirPlaceAndHaveNamesOfTheirOwn) {
  const auto run = run_launcher(hosts(
      {"--count", "3"},
      {"sh", "-c",
       "echo $PET_NODE_RANK of $PET_NNODES at $PET_MASTER_ADDR:$PET_MASTER_PORT named $(cat "
       "/proc/sys/kernel/hostname)"}));
  EXPECT_EQ(run.status.result(), 0) << run.errors;
  EXPECT_THAT(run.output, HasSubstr("0 of 3 at 10.77.77.1:29500 named host-0\n"));
  EXPECT_THAT(run.output, HasSubstr("[host 2] 2 of 3 at 10.77.77.1:29500 named host-2\n"));
  EXPECT_THAT(run.output, Not(HasSubstr("[host 0]"))) << "its output is the run's result";
}

TEST_F(MadeHosts, HaveProcessesAndANetworkOfTheirOwn) {
  const auto run = run_launcher(two("echo pid $$; ls -d /proc/[0-9]* | wc -l; ip -o link"));
  EXPECT_EQ(run.status.result(), 0) << run.errors;
  EXPECT_THAT(run.output, HasSubstr("pid 2\n")) << "the first process is ours";
  EXPECT_THAT(run.output, HasSubstr("eth0@"));
  EXPECT_THAT(run.output, HasSubstr("lo: <LOOPBACK,UP"));
  EXPECT_THAT(run.output, Not(HasSubstr("port0"))) << "the switch is elsewhere";
}

constexpr const char* kTalk = R"(
import os, socket, time
place = (os.environ["PET_MASTER_ADDR"], int(os.environ["PET_MASTER_PORT"]))
if os.environ["PET_NODE_RANK"] == "0":
    listener = socket.create_server(place)
    connection, peer = listener.accept()
    count = 0
    while piece := connection.recv(1 << 16): count += len(piece)
    print("received", count, "from", peer[0])
else:
    while True:
        try:
            connection = socket.create_connection(place)
            break
        except OSError:
            time.sleep(0.01)
    connection.sendall(b"x" * 3000000)
    connection.close()
)";

TEST_F(MadeHosts, ReachEachOtherOverALimitedLink) {
  const auto run = run_launcher(
      two("tc qdisc show dev eth0; exec python3 -c '" + std::string(kTalk) + "'",
          {"--rate", "100mbit"}));
  EXPECT_EQ(run.status.result(), 0) << run.errors;
  EXPECT_THAT(run.output, HasSubstr("received 3000000 from 10.77.77.2"));
  EXPECT_THAT(run.output, HasSubstr("tbf"));
  EXPECT_THAT(run.output, HasSubstr("rate 100Mbit"));
}

TEST_F(MadeHosts, TheFirstFailureEndsAll) {
  const auto run = run_launcher(two("if [ $PET_NODE_RANK = 1 ]; then exit 7; fi; sleep 600"));
  EXPECT_EQ(run.status.result(), 7);
  EXPECT_THAT(run.errors, HasSubstr("the run failed: host 1 exited with code 7"));
}

TEST_F(MadeHosts, AHostThatLostTheOthersIsNotTheCause) {
  const TemporaryFolder folder;
  const std::string lost = folder.path("lost");
  const auto run = run_launcher(
      two("if [ $PET_NODE_RANK = 0 ]; then touch " + lost + "; exit 5; fi; while [ ! -e " + lost +
          " ]; do sleep 0.01; done; exit 9"));
  EXPECT_EQ(run.status.result(), 9) << run.errors;
}

TEST_F(MadeHosts, NothingIsLeftWhenTheLauncherIsKilled) {
  const std::string mark = "LOCKSTEP_TEST_MARK=" + std::to_string(::getpid());
  LauncherRun run(two("setsid sleep 600 & sleep 600 & echo ready; wait"), {mark});
  run.wait_for_lines(2);
  const auto pids = processes_with(mark);
  ASSERT_GE(pids.size(), 9U);  // ours, and on each host two of ours, a shell, two sleeps
  run.signal(SIGKILL);
  EXPECT_TRUE(all_end(pids));
  run.finish();
}

TEST_F(MadeHosts, NothingIsLeftOfACommandThatLeftProcesses) {
  const std::string mark = "LOCKSTEP_TEST_MARK=left-" + std::to_string(::getpid());
  const auto run = run_launcher(two("setsid sleep 600 >/dev/null 2>&1 & exit 0"), {mark});
  EXPECT_EQ(run.status.result(), 0) << run.errors;
  EXPECT_TRUE(all_end(processes_with(mark)));
}

TEST_F(MadeHosts, SignalsArePassedOn) {
  LauncherRun run(two("trap 'echo asked; exit 3' TERM; echo ready; while :; do sleep 0.01; done"));
  run.wait_for_lines(2);
  run.signal(SIGTERM);
  const auto end = run.finish();
  EXPECT_EQ(end.status.result(), 128 + SIGTERM);
  EXPECT_THAT(end.output, HasSubstr("\nasked"));
  EXPECT_THAT(end.output, HasSubstr("[host 1] asked"));
}

TEST_F(MadeHosts, AreStartedAgainAfterADrill) {
  const auto run = run_launcher(
      two("[ $TORCHELASTIC_RESTART_COUNT = 1 ] || sleep 600; echo life $TORCHELASTIC_RESTART_COUNT "
          "port $PET_MASTER_PORT",
          {"--max-restarts", "1", "--kill", "1@0.2"}));
  EXPECT_EQ(run.status.result(), 0) << run.errors;
  EXPECT_THAT(run.output, HasSubstr("life 1 port 29501\n"));
  EXPECT_THAT(run.output, HasSubstr("[host 1] life 1"));
  EXPECT_THAT(run.errors, HasSubstr("killing host 1, as --kill asks"));
  EXPECT_THAT(run.errors, HasSubstr("restart 1 of 1: host 1 was killed by SIGKILL"));
}

TEST_F(MadeHosts, ARunThatFailsAgainIsGivenUp) {
  const auto run = run_launcher(two("exit 8", {"--max-restarts", "2"}));
  EXPECT_EQ(run.status.result(), 8);
  EXPECT_THAT(run.errors, HasSubstr("restarts used up: --max-restarts 2"));
}

TEST_F(MadeHosts, ALauncherInsideCountsOn) {
  const auto run = run_launcher(hosts(
      {"--count", "2", "--max-restarts", "1", "--kill", "0@0.2"},
      {"lockstep", "run", "--nproc-per-node", "1", "--", "sh", "-c",
       "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || sleep 600; echo rank $RANK of $WORLD_SIZE "
       "restart $TORCHELASTIC_RESTART_COUNT after ${LOCKSTEP_DEATH_NS:+a death}"}));
  EXPECT_EQ(run.status.result(), 0) << run.errors;
  EXPECT_THAT(run.output, HasSubstr("rank 0 of 2 restart 1 after a death\n"));
  EXPECT_THAT(run.output, HasSubstr("rank 1 of 2 restart 1 after a death\n"));
}

TEST_F(MadeHosts, TrainTogetherAndOneWrites) {
  const TemporaryFolder folder;
  const auto run = run_launcher(hosts(
      {"--count", "2", "--rate", "1gbit"},
      {"lockstep", "run", "--nproc-per-node", "1", "--", "lockstep", "train", "--model", "toy",
       "--data", "mock", "--max-steps", "3", "--progress", "none", "--json", "--output",
       folder.path("run")}));
  EXPECT_EQ(run.status.result(), 0) << run.errors;
  EXPECT_THAT(run.output, HasSubstr("\"world_size\":2"));
  EXPECT_THAT(folder.text_of("run/summary.json"), HasSubstr("\"world_size\":2"));
}

TEST_F(MadeHosts, SaySoWhenRightsAreMissing) {
  const auto run = run_launcher(
      {"--bounding-set", "-sys_admin", built_launcher(), "hosts", "--count", "2", "--", "true"}, {},
      "/usr/bin/setpriv");
  EXPECT_EQ(run.status.result(), 4);
  EXPECT_THAT(run.errors, HasSubstr("hosts: cannot make network namespaces"));
  EXPECT_THAT(run.errors, HasSubstr("name real hosts"));
}

TEST_F(MadeHosts, ShareNoMemory) {
  const TemporaryFolder folder;
  const auto run = run_launcher(hosts(
      {"--count", "2"},
      {"lockstep", "run", "--nproc-per-node", "1", "--", "lockstep", "train", "--model", "toy",
       "--data", "mock", "--max-steps", "1", "--backend", "shm", "--output", folder.path("run")}));
  EXPECT_EQ(run.status.result(), 2);
  EXPECT_THAT(run.errors, HasSubstr("cannot share memory"));
}

}  // namespace
}  // namespace lockstep::testing
