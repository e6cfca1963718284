// The launcher that serves the others is lost: real processes on this host.

#include <chrono>
#include <fstream>
#include <gmock/gmock.h>
#include <signal.h>
#include <sstream>
#include <thread>
#include <unistd.h>

#include "tests/process/launcher/nodes.h"

#include "lockstep/core/environment.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// Prints its own process, and waits until the restarts are as many as these.
std::string waits_until_restart(int count) {
  return "echo pid $$; [ $TORCHELASTIC_RESTART_COUNT -lt " + std::to_string(count) +
         " ] && exec sleep 600; echo world $WORLD_SIZE, restart $TORCHELASTIC_RESTART_COUNT";
}

// Starts them so that the first one serves, and waits for their ranks.
void start_all(Nodes& nodes, std::size_t count, const std::string& script) {
  nodes.start(script).wait_until([&] { return Nodes::says(nodes[0], "waiting: 1 of "); });
  for (std::size_t node = 1; node < count; ++node) nodes.start(script);
  for (std::size_t node = 0; node < count; ++node) nodes[node].wait_for_lines(2);
}

// What the node that serves now has printed.
std::string endpoint_of(Command& heir) {
  const std::string words = "--rdzv-endpoint ";
  const auto printed = [&] {
    const auto at = heir.err().find(words);
    const auto end = heir.err().find('\n', at);
    const auto begin = at + words.size();
    const bool is_there = at != std::string::npos && end != std::string::npos;
    return is_there ? heir.err().substr(begin, end - begin) : "";
  };
  heir.wait_until([&] { return !printed().empty(); });
  return printed();
}

TEST(Succession, GoesOnWithoutTheNodeThatServed) {
  Nodes nodes("--nnodes 2:3");
  start_all(nodes, 3, waits_until_restart(1));
  nodes[0].signal(SIGKILL);
  const auto second = nodes[1].wait().with_code(0), third = nodes[2].wait().with_code(0);
  EXPECT_THAT(second.out, HasSubstr("world 4, restart 1\n"));
  EXPECT_THAT(third.out, HasSubstr("world 4, restart 1\n"));
  EXPECT_THAT(
      second.err, HasSubstr("lost the node that serves the rendezvous, " + nodes.endpoint()));
  EXPECT_EQ(count_of("this node serves the rendezvous now", second.err + third.err), 1);
  EXPECT_TRUE(all_end(numbers_after("pid", second.out + third.out)));
}

TEST(Succession, HappensAgainAndTakesInOthers) {
  Nodes nodes("--nnodes 1:3 --rdzv-conf last_call_timeout=60");
  start_all(nodes, 3, waits_until_restart(3));
  const std::size_t next = Nodes::says(nodes[1], "node 1 of 3") ? 1 : 2;
  nodes[0].signal(SIGKILL);
  nodes[next].wait_until([&] { return Nodes::says(nodes[next], "generation 2: "); });
  // One that comes finds the world at the address that was printed.
  Words command = words(
      "run --nproc-per-node 2 --log-line-prefix= --nnodes 1:3 --rdzv-backend lockstep "
      "--rdzv-endpoint " +
      endpoint_of(nodes[next]) + " -- sh -c");
  command.push_back(waits_until_restart(3));
  Command joined(command);
  joined.wait_for_lines(2);
  nodes[next].signal(SIGKILL);
  const auto last = nodes[3 - next].wait().with_code(0);
  joined.wait().with_code(0);
  EXPECT_THAT(last.out, HasSubstr("world 4, restart 3\n"));
}

/// Three nodes of which the first serves; the ranks of the next save until they are let.
class Saving : public ::testing::Test {
 protected:
  void start(const std::string& flags) {
    nodes_.emplace(flags);
    start_all(*nodes_, 3,
        "echo pid $$; [ $TORCHELASTIC_RESTART_COUNT = 1 ] && { echo world $WORLD_SIZE; exit 0; }; "
        "[ $GROUP_RANK = 1 ] && exec " +
            *environment("LOCKSTEP_BINARY_DIR") + "/progress_probe 0 " + folder_.file("saved") +
            "; exec sleep 600");
    next_ = Nodes::says((*nodes_)[1], "node 1 of 3") ? 1 : 2;
    next().wait_for_lines(4);
    (*nodes_)[0].signal(SIGKILL);
    next().wait_until([&] { return Nodes::says(next(), "this node serves the rendezvous now"); });
  }

  void let_them() const { std::ofstream(folder_.file("saved")) << "yes"; }

  Command& next() { return (*nodes_)[next_]; }
  Command& other() { return (*nodes_)[3 - next_]; }

  TemporaryFolder folder_;
  std::optional<Nodes> nodes_;
  std::size_t next_ = 1;
};

TEST_F(Saving, IsWaitedForByTheNodesThatAreLeft) {
  start("--nnodes 2:3");
  other().wait_until([&] { return Nodes::says(other(), "waiting: 2 of 2 to 3 nodes"); });
  let_them();
  const auto first = next().wait().with_code(0), second = other().wait().with_code(0);
  EXPECT_THAT(first.out, HasSubstr("saved\n"));
  EXPECT_THAT(first.out, HasSubstr("world 4\n"));
  EXPECT_THAT(second.out, HasSubstr("world 4\n"));
}

TEST_F(Saving, ANodeThatWaitsMeanwhileCanBeStopped) {
  start("--nnodes 1:3");
  other().wait_until([&] { return Nodes::says(other(), "waiting: 2 of 1 to 3 nodes"); });
  other().signal(SIGTERM);
  EXPECT_EQ(other().wait().code(), 128 + SIGTERM);
  let_them();
  EXPECT_THAT(next().wait().with_code(0).out, HasSubstr("world 2\n"));
}

TEST(Succession, ANodeThatServesAndIsStoppedIsNoWorseThanADeadOne) {
  Nodes nodes("--nnodes 2:3");
  start_all(nodes, 3, waits_until_restart(1));
  nodes[0].signal(SIGTERM);
  EXPECT_EQ(nodes[0].wait().code(), 128 + SIGTERM);
  for (const std::size_t node : {1U, 2U}) {
    EXPECT_THAT(nodes[node].wait().with_code(0).out, HasSubstr("world 4, restart 1\n"));
  }
}

// As by its supervisor, at the address where the world was founded.
TEST(Succession, TheNodeThatServedComesBackToTheWorldThatGoesOn) {
  Nodes nodes(
      "--nnodes 1:3 --rdzv-conf last_call_timeout=0,keep_alive_interval=0.1,"
      "keep_alive_max_attempt=10");
  const std::string script =
      "echo pid $$; [ $TORCHELASTIC_RESTART_COUNT -ge 2 ] && [ $WORLD_SIZE = 4 ] && "
      "{ echo world $WORLD_SIZE; exit 0; }; exec sleep 600";
  nodes.start(script).wait_for_lines(2);
  nodes.start(script).wait_for_lines(2);
  nodes[0].signal(SIGKILL);
  nodes[0].wait();
  nodes.start(script);
  for (const std::size_t node : {1U, 2U}) {
    EXPECT_THAT(nodes[node].wait().with_code(0).out, HasSubstr("world 4\n"));
  }
}

TEST(Succession, DoesNotHappenWhereTooFewAreLeft) {
  Nodes nodes("--nnodes 2:3 --rdzv-conf last_call_timeout=0");
  start_all(nodes, 2, waits_until_restart(1));
  const auto ranks = numbers_after("pid", nodes[1].wait_for_lines(2));
  nodes[0].signal(SIGKILL);
  const auto second = nodes[1].wait().with_code(5);
  EXPECT_THAT(second.err, HasSubstr("start all nodes again to continue"));
  EXPECT_THAT(second.err, Not(HasSubstr("serves the rendezvous now")));
  EXPECT_TRUE(all_end(ranks));
}

// From its start, in all its threads.
double cpu_seconds_of(pid_t process) {
  const std::string stat = contents("/proc/" + std::to_string(process) + "/stat");
  std::istringstream fields(stat.substr(stat.rfind(')') + 1));
  std::string skipped;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  long user = 0, system = 0;
  EXPECT_TRUE(fields >> user >> system) << stat;
  return static_cast<double>(user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

// What told it of the loss must not wake it again and again until its ranks have saved.
TEST(Succession, ANodeThatIsLeftAloneSleepsWhileItsRanksSave) {
  const TemporaryFolder folder;
  Nodes nodes("--nnodes 2");
  start_all(nodes, 2,
      "echo pid $$; exec " + *environment("LOCKSTEP_BINARY_DIR") + "/progress_probe 0 " +
          folder.file("saved"));
  Command& left = nodes[1];
  left.wait_for_lines(4);
  nodes[0].signal(SIGKILL);
  nodes[0].wait();
  const double before = cpu_seconds_of(left.pid());
  std::this_thread::sleep_for(std::chrono::seconds(3));
  EXPECT_LT(cpu_seconds_of(left.pid()) - before, 1);
  std::ofstream(folder.file("saved")) << "yes";
  const Ended ended = left.wait().with_code(5);
  EXPECT_THAT(ended.out, HasSubstr("saved\n"));
  EXPECT_THAT(ended.err, HasSubstr("lost the node that serves the rendezvous"));
}

TEST(Succession, LeavesAServingNodeThatStoodStillBehind) {
  Nodes nodes(
      "--nnodes 1:2 --rdzv-conf keep_alive_interval=0.1,keep_alive_max_attempt=5,"
      "last_call_timeout=60");
  start_all(nodes, 2, waits_until_restart(1));
  nodes[0].signal(SIGSTOP);
  EXPECT_THAT(nodes[1].wait().with_code(0).out, HasSubstr("world 2, restart 1\n"));
  nodes[0].signal(SIGCONT);
  const auto first = nodes[0].wait().with_code(5);
  EXPECT_THAT(first.err, HasSubstr("stood still"));
  EXPECT_TRUE(all_end(numbers_after("pid", first.out)));
}

}  // namespace
}  // namespace lockstep::testing
