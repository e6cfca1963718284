// Hosts that are made within this machine, with real processes and sockets. This needs root.

#include <gmock/gmock.h>
#include <signal.h>

#include "tests/process/command.h"
#include "tests/process/launcher/made_hosts.h"

#include "lockstep/core/environment.h"
#include "lockstep/launch/hosts/made_hosts.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(MadeHosts, KnowTheirPlaceAndHaveTheirOwnNamesProcessesAndNetwork) {
  const auto run = run_command(
      shell_on("--count 3 --",
          "echo $PET_NODE_RANK of $PET_NNODES at $PET_MASTER_ADDR:$PET_MASTER_PORT named $(cat "
          "/proc/sys/kernel/hostname); echo pid $$; ip -o link"))
                       .with_code(0);
  EXPECT_THAT(run.out, HasSubstr("0 of 3 at 10.77.77.1:29500 named host-0\n"));
  EXPECT_THAT(run.out, HasSubstr("[host 2] 2 of 3 at 10.77.77.1:29500 named host-2\n"));
  EXPECT_THAT(run.out, Not(HasSubstr("[host 0]"))) << "its output is the run's result";
  EXPECT_THAT(run.out, HasSubstr("pid 2\n")) << "the first process is ours";
  EXPECT_THAT(run.out, HasSubstr("eth0@"));
  EXPECT_THAT(run.out, HasSubstr("lo: <LOOPBACK,UP"));
  EXPECT_THAT(run.out, Not(HasSubstr("port0"))) << "the switch is elsewhere";
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
  const auto run = run_command(two(
      "tc qdisc show dev eth0; exec python3 -c '" + std::string(kTalk) + "'", "--rate 100mbit"));
  EXPECT_EQ(run.code(), 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("received 3000000 from 10.77.77.2"));
  EXPECT_THAT(run.out, HasSubstr("tbf"));
  EXPECT_THAT(run.out, HasSubstr("rate 100Mbit"));
}

TEST_F(MadeHosts, TrainTogetherAndOneWrites) {
  const TemporaryFolder folder;
  const auto run =
      train("--rate 1gbit", "--max-steps 3 --progress none --json --output " + folder.file("run"));
  EXPECT_EQ(run.code(), 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("\"world_size\":2"));
  EXPECT_THAT(contents(folder.file("run/summary.json")), HasSubstr("\"world_size\":2"));
}

// As two ranks of one host do that Gloo connects: on the hosts the run is stopped and goes on.
TEST_F(MadeHosts, AStoppedRunHasTheParametersOfOneHost) {
  const Words one_thread{"OMP_NUM_THREADS=1"};
  for (const std::string way : {"ddp --shard-optimizer", "pp --balance count --chunks 2"}) {
    const TemporaryFolder folder;
    const std::string hosts = folder.file("hosts"), host = folder.file("host");
    const std::string flags =
        "--epochs 100000 --val-interval never --snapshot-interval none "
        "--log-interval 1 --progress none --parallel " +
        way + " --output ";
    Command begun(training("", flags + hosts), one_thread);
    begun.wait_until(
        [&] { return count_of("\n", contents_so_far(hosts + "/metrics.jsonl")) >= 2; });
    begun.signal(SIGTERM);
    begun.wait().with_code(75);
    const std::string steps =
        " --max-steps " + std::to_string(summary(hosts)["steps"].get<int>() + 3);
    run_command(training("", flags + hosts + " --resume auto" + steps), one_thread).with_code(0);
    EXPECT_FALSE(summary(hosts)["resumed_from"].is_null());
    const Ended whole = run_command(words("train --model toy --data mock --nproc-per-node 2 "
                                          "--backend gloo " +
                                          flags + host + steps),
        one_thread);
    EXPECT_EQ(whole.code(), 0) << whole.err;
    EXPECT_EQ(summary(hosts)["parameters_hash"], summary(host)["parameters_hash"]) << way;
  }
}

// Debian gives a host's own name 127.0.1.1 in /etc/hosts: a store that listened there, or a Gloo
// that announced it, would be out of the others' reach.
TEST_F(MadeHosts, MeetWhereTheirOwnNamesAreTheLoopback) {
  const TemporaryFolder folder;
  const std::string script =
      "unset GLOO_SOCKET_IFNAME; own=$(cat /proc/sys/kernel/hostname); "
      "names=$(grep -v $own /etc/hosts; echo 127.0.1.1 $own); "
      "echo \"$names\" > /etc/hosts; exec lockstep run --master-addr host-0 -- lockstep train "
      "--model toy --data mock --max-steps 3 --progress none --timeout 20s --output " +
      folder.file("run");
  const std::string path =
      "PATH=" + system_variable("LOCKSTEP_BINARY_DIR") + ":" + system_variable("PATH");
  run_command(two(script), {path}).with_code(0);
  EXPECT_EQ(summary(folder.file("run"))["world_size"], 2);
}

TEST_F(MadeHosts, TrainByPetVariables) {
  const TemporaryFolder folder;
  run_command(words("hosts --count 2 -- lockstep train --model toy --data mock "
                    "--max-steps 3 --progress none --output " +
                    folder.file("run")))
      .with_code(0);
  EXPECT_EQ(summary(folder.file("run"))["world_size"], 2);
}

TEST_F(MadeHosts, MayFindEachOther) {
  const TemporaryFolder folder;
  const auto run = [&](const std::string& flags) {
    return run_command(
        words("hosts --count 2 -- lockstep run --nproc-per-node 1 --rdzv-backend "
              "lockstep " +
              flags + " -- lockstep train --model toy --data mock --max-steps 3 " +
              "--progress none --output " + folder.file("run")));
  };
  EXPECT_THAT(run("").with_code(2).err, HasSubstr("give all nodes one secret"));
  run("--insecure").with_code(0);
  EXPECT_EQ(summary(folder.file("run"))["world_size"], 2);
}

TEST_F(MadeHosts, SayWhenRightsAreMissing) {
  const auto run = run_command(
      {"--bounding-set", "-sys_admin", built_lockstep(), "hosts", "--count", "2", "--", "true"}, {},
      "/usr/bin/setpriv");
  EXPECT_EQ(run.code(), 4);
  EXPECT_THAT(run.err, HasSubstr("hosts: cannot make network namespaces"));
  EXPECT_THAT(run.err, HasSubstr("name real hosts"));
}

// Four ranks whose numbers are summed within their hosts first, and over any of the collectives.
TEST_F(MadeHosts, WithSeveralRanksEachHaveTwoLevels) {
  const TemporaryFolder folder;
  const std::string ranks = "hosts --count 2 -- lockstep run --nproc-per-node 2 -- lockstep ";
  const auto swept = run_command(words(ranks + "collectives --backend hierarchical --op all " +
                                       "--max-bytes 4M --factor 16 --warmup 1 --iterations 1"));
  EXPECT_EQ(swept.code(), 0) << swept.err;
  EXPECT_EQ(count_of(" hierarchical ", swept.out), 6 * 4) << swept.out;
  const auto trained = run_command(words(ranks + "train --model toy --data mock --max-steps 3 " +
                                         "--progress none --output " + folder.file("run")));
  EXPECT_EQ(trained.code(), 0) << trained.err;
  EXPECT_THAT(contents(folder.file("run/env.json")), HasSubstr("\"backend\":\"hierarchical\""));
}

TEST_F(MadeHosts, ShareNoMemory) {
  const TemporaryFolder folder;
  const auto run = train("", "--max-steps 1 --backend shm --output " + folder.file("run"));
  EXPECT_EQ(run.code(), 2);
  EXPECT_THAT(run.err, HasSubstr("cannot share memory"));
}

}  // namespace
}  // namespace lockstep::testing
