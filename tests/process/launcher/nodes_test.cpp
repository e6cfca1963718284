// Several launchers that find each other: real processes on this host.

#include "tests/process/launcher/nodes.h"

#include <chrono>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <thread>

#include "lockstep/core/file_descriptor.h"
#include "lockstep/net/endpoint.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Nodes, MakeOneWorldAndKeepTheirSecret) {
  Nodes nodes("--nnodes 2 --rdzv-id job");
  nodes.start_two(
      "echo rank $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE, node $GROUP_RANK of "
      "$GROUP_WORLD_SIZE, restart $TORCHELASTIC_RESTART_COUNT, run $TORCHELASTIC_RUN_ID; "
      "echo secret is ${LOCKSTEP_SECRET-gone}",
      {"LOCKSTEP_SECRET=of sixteen bytes or more"});
  const auto first = nodes[0].wait().with_code(0), second = nodes[1].wait().with_code(0);
  EXPECT_THAT(first.out, HasSubstr("rank 0 of 4, 0 of 2, node 0 of 2, restart 0, run job\n"));
  EXPECT_THAT(first.out, HasSubstr("rank 1 of 4, 1 of 2, node 0 of 2, restart 0, run job\n"));
  EXPECT_THAT(second.out, HasSubstr("rank 2 of 4, 0 of 2, node 1 of 2, restart 0, run job\n"));
  EXPECT_THAT(second.out, HasSubstr("rank 3 of 4, 1 of 2, node 1 of 2, restart 0, run job\n"));
  EXPECT_THAT(first.out, HasSubstr("secret is gone\n"));
  EXPECT_THAT(first.out + first.err, Not(HasSubstr("sixteen")));
}

TEST(Nodes, StartAgainTogether) {
  Nodes nodes("--nnodes 2 --max-restarts 3");
  nodes.start_two(
      "n=$TORCHELASTIC_RESTART_COUNT; [ $RANK$n = 30 ] && { echo why >&2; kill -9 $$; }; "
      "[ $n = 0 ] && exec sleep 600; echo rank $RANK, $n of $TORCHELASTIC_MAX_RESTARTS");
  const auto first = nodes[0].wait().with_code(0), second = nodes[1].wait().with_code(0);
  EXPECT_THAT(first.out, HasSubstr("rank 0, 1 of 3\n"));
  EXPECT_THAT(second.out, HasSubstr("rank 3, 1 of 3\n"));
  EXPECT_THAT(second.err, HasSubstr("restart 1 of 3: rank 3 of 4 (host "));
  EXPECT_THAT(second.err, HasSubstr("was killed by SIGKILL (signal 9)"));
  EXPECT_THAT(second.err, HasSubstr("  | why\n"));
  EXPECT_THAT(first.err, HasSubstr("ending the ranks: rank 3 of 4 ("));
}

TEST(Nodes, ReturnTheCodeOfTheRankThatFailed) {
  Nodes nodes("--nnodes 2 --max-restarts 1");
  nodes.start_two("[ $RANK = 0 ] && exit 7; exec sleep 600");
  const auto first = nodes[0].wait().with_code(7), second = nodes[1].wait().with_code(7);
  EXPECT_THAT(first.err, HasSubstr("the run failed: rank 0 of 4"));
  EXPECT_THAT(first.err, HasSubstr("restarts used up: --max-restarts 1"));
  EXPECT_THAT(second.err, HasSubstr("the run failed: restarts used up: --max-restarts 1"));
}

/// Prints its own process, and waits in the first generation.
constexpr const char* kWaitOnce =
    "echo pid $$; [ $TORCHELASTIC_RESTART_COUNT = 0 ] && exec sleep 600; echo world $WORLD_SIZE";

TEST(Nodes, GoOnWithoutAKilledOne) {
  Nodes nodes("--nnodes 1:2");
  nodes.start_two(kWaitOnce);
  const auto ranks = numbers_after("pid", nodes[1].wait_for_lines(2));
  nodes[1].signal(SIGKILL);
  const auto first = nodes[0].wait().with_code(0);
  EXPECT_THAT(first.out, HasSubstr("world 2\n"));
  EXPECT_THAT(first.err, HasSubstr(" was lost\n"));
  EXPECT_TRUE(all_end(ranks));
  EXPECT_TRUE(all_end(numbers_after("pid", first.out)));
}

TEST(Nodes, TakeInOneThatJoins) {
  Nodes nodes("--nnodes 1:2 --rdzv-conf last_call_timeout=0");
  nodes.start(kWaitOnce).wait_for_lines(2);
  nodes.start(kWaitOnce);
  const auto first = nodes[0].wait().with_code(0), second = nodes[1].wait().with_code(0);
  EXPECT_THAT(first.out, HasSubstr("world 4\n"));
  EXPECT_THAT(second.out, HasSubstr("world 4\n"));
  EXPECT_THAT(first.err, HasSubstr(" joins\n"));
}

TEST(Nodes, TakeAnotherInPlaceOfAKilledOne) {
  Nodes nodes("--nnodes 2 --max-restarts 1");
  nodes.start_two(kWaitOnce);
  nodes[1].wait_for_lines(2);
  nodes[1].signal(SIGKILL);
  nodes[0].wait_until([&] { return count_of("waiting: 1 of 2 nodes", nodes[0].err()) == 2; });
  nodes.start(kWaitOnce);
  const auto first = nodes[0].wait().with_code(0), third = nodes[2].wait().with_code(0);
  EXPECT_THAT(first.out, HasSubstr("world 4\n"));
  EXPECT_THAT(third.out, HasSubstr("world 4\n"));
}

TEST(Nodes, OfAFixedNumberEndWithoutTheOneThatServes) {
  Nodes nodes("--nnodes 2 --max-restarts 3");
  nodes.start_two(kWaitOnce);
  const auto ranks = numbers_after("pid", nodes[1].wait_for_lines(2));
  nodes[0].signal(SIGKILL);
  EXPECT_THAT(nodes[1].wait().with_code(5).err,
      HasSubstr("lost the node that serves the rendezvous, " + nodes.endpoint()));
  EXPECT_TRUE(all_end(ranks));
}

TEST(Nodes, OneThatIsStoppedIsSilentAndDoneWithout) {
  Nodes nodes("--nnodes 1:2 --rdzv-conf keep_alive_interval=0.1,keep_alive_max_attempt=5");
  nodes.start_two(kWaitOnce);
  nodes[1].wait_for_lines(2);
  nodes[1].signal(SIGSTOP);
  EXPECT_THAT(nodes[0].wait().with_code(0).out, HasSubstr("world 2\n"));
  // It comes back when all is over, and takes nothing up again.
  nodes[1].signal(SIGCONT);
  const auto second = nodes[1].wait().with_code(5);
  EXPECT_TRUE(all_end(numbers_after("pid", second.out)));
}

TEST(Nodes, ALogThatBlocksLosesNone) {
  const TemporaryFolder folder;
  const std::string log = folder.file("rank-0.log");
  const std::string flags =
      "--nnodes 2 --max-restarts 1 --rdzv-conf keep_alive_interval=0.1,keep_alive_max_attempt=5";
  const std::string script =
      "[ $RANK = 0 ] && exec seq 1 20000; [ $RANK = 1 ] || sleep 2; echo done";
  Nodes nodes(flags);
  Words blocked = words("run --nproc-per-node 2 --rdzv-backend lockstep --log-dir " + folder.str() +
                        " --rdzv-endpoint " + nodes.endpoint() + " " + flags + " -- sh -c");
  blocked.push_back(script);
  Command first(blocked);
  first.wait_until([&] { return Nodes::says(first, "waiting: 1 of 2"); });
  ASSERT_EQ(::mkfifo(log.c_str(), 0600), 0);
  nodes.start(script).wait_for_lines(2);  // the other is busy for longer than silence is borne
  Command reader({"-c", "exec cat " + log + " >/dev/null"}, {}, "/bin/sh");
  const auto second = nodes[0].wait().with_code(0);
  first.wait().with_code(0);
  EXPECT_THAT(second.err, Not(HasSubstr("was lost")));
}

TEST(Nodes, AreStoppedTogetherWhenTooFewAreLeft) {
  Nodes nodes("--nnodes 2 --max-restarts 3");
  nodes.start_two("trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done");
  nodes[0].wait_for_lines(2);
  nodes[1].wait_for_lines(2);
  nodes[1].signal(SIGTERM);
  const auto first = nodes[0].wait(), second = nodes[1].wait();
  EXPECT_EQ(second.code(), 0) << second.err;
  EXPECT_THAT(second.err, HasSubstr("passing SIGTERM on to all ranks"));
  EXPECT_THAT(first.err, HasSubstr("was asked to stop, and too few are left"));
}

TEST(Nodes, OneThatWaitsCanBeStopped) {
  Nodes nodes("--nnodes 2");
  nodes.start("true").wait_until([&] { return Nodes::says(nodes[0], "waiting: 1 of 2"); });
  nodes[0].signal(SIGTERM);
  EXPECT_EQ(nodes[0].wait().code(), 128 + SIGTERM);
  Nodes others("--nnodes 2 --rdzv-conf is_host=false");
  others.start("true");  // nobody serves
  others[0].wait_until([&] { return !processes_with(others.endpoint()).empty(); });
  others[0].signal(SIGINT);
  EXPECT_EQ(others[0].wait().code(), 128 + SIGINT);
}

TEST(Nodes, TooFewGiveUpInTime) {
  Nodes nodes("--nnodes 2:3 --rdzv-conf join_timeout=0.2");
  const auto end = nodes.start("true").wait().with_code(5);
  EXPECT_THAT(end.err, HasSubstr("only 1 of at least 2 nodes came within 0.2 s"));
}

TEST(Nodes, AnEndpointWithoutAnAddressIsWaitedForInVain) {
  const auto end = run_command(words(
      "run --nnodes 2 --rdzv-backend lockstep --rdzv-endpoint no.such.host.invalid --insecure "
      "--rdzv-conf join_timeout=0.3 -- true"));
  EXPECT_EQ(end.code(), 5);
  EXPECT_THAT(end.err, HasSubstr("no address for no.such.host.invalid"));
}

// Such as the near end of a connection, for which the kernel chose that port.
TEST(Nodes, APortThatAnotherProgramHasForAWhileIsWaitedFor) {
  FileDescriptor other(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(other.get(), reinterpret_cast<sockaddr*>(&place), sizeof(place)), 0);
  const Words one = words(
      "run --nnodes 2 --rdzv-backend lockstep --rdzv-conf join_timeout=20 --rdzv-endpoint "
      "127.0.0.1:" +
      std::to_string(net::port_of_socket(other)) + " -- true");
  Command first(one), second(one);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  other.reset();
  first.wait().with_code(0);
  second.wait().with_code(0);
}

TEST(Nodes, OneWithAnotherProgramIsRefusedWithTheDifference) {
  Nodes nodes("--nnodes 2");
  nodes.start("true").wait_until([&] { return Nodes::says(nodes[0], "waiting: 1 of 2"); });
  const auto other = nodes.start("exit 0").wait().with_code(2);
  EXPECT_THAT(other.err, HasSubstr("this node is refused: the command is sh -c true, on host "));
  EXPECT_THAT(other.err, HasSubstr(" it is sh -c exit 0"));
  EXPECT_EQ(nodes.start("true").wait().code(), 0);
  EXPECT_EQ(nodes[0].wait().code(), 0);
}

TEST(Nodes, BeyondThisHostNeedASecret) {
  const auto run = [](const std::string& flags) {
    return run_command(
        words("run --nnodes 2 --rdzv-backend c10d --rdzv-endpoint 192.0.2.1:29400 "
              "--rdzv-conf join_timeout=0 " +
              flags + " -- true"));
  };
  EXPECT_EQ(run("").code(), 2);
  EXPECT_THAT(run("").err, HasSubstr("give all nodes one secret, by LOCKSTEP_SECRET or"));
  EXPECT_EQ(run("--insecure").code(), 5);
}

}  // namespace
}  // namespace lockstep::testing
