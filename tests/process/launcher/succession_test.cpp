// The launcher that serves the others is lost: real processes on this host.

#include <gmock/gmock.h>
#include <signal.h>

#include "tests/process/launcher/nodes.h"

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
  const auto second = nodes[1].wait(), third = nodes[2].wait();
  EXPECT_EQ(second.code(), 0) << second.err;
  EXPECT_EQ(third.code(), 0) << third.err;
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
  // One that comes finds the world at the address that was printed.
  Words command = words(
      "run --nproc-per-node 2 --log-line-prefix= --nnodes 1:3 --rdzv-backend lockstep "
      "--rdzv-endpoint " +
      endpoint_of(nodes[next]) + " -- sh -c");
  command.push_back(waits_until_restart(3));
  Command joined(command);
  joined.wait_for_lines(2);
  nodes[next].signal(SIGKILL);
  const auto last = nodes[3 - next].wait(), new_one = joined.wait();
  EXPECT_EQ(last.code(), 0) << last.err;
  EXPECT_EQ(new_one.code(), 0) << new_one.err;
  EXPECT_THAT(last.out, HasSubstr("world 4, restart 3\n"));
}

TEST(Succession, DoesNotHappenWhereTooFewAreLeft) {
  Nodes nodes("--nnodes 2:3 --rdzv-conf last_call_timeout=0");
  start_all(nodes, 2, waits_until_restart(1));
  const auto ranks = numbers_after("pid", nodes[1].wait_for_lines(2));
  nodes[0].signal(SIGKILL);
  const auto second = nodes[1].wait();
  EXPECT_EQ(second.code(), 5) << second.err;
  EXPECT_THAT(second.err, HasSubstr("start all nodes again to continue"));
  EXPECT_THAT(second.err, Not(HasSubstr("serves the rendezvous now")));
  EXPECT_TRUE(all_end(ranks));
}

TEST(Succession, LeavesAServingNodeThatStoodStillBehind) {
  Nodes nodes(
      "--nnodes 1:2 --rdzv-conf keep_alive_interval=0.1,keep_alive_max_attempt=5,"
      "last_call_timeout=60");
  start_all(nodes, 2, waits_until_restart(1));
  nodes[0].signal(SIGSTOP);
  const auto second = nodes[1].wait();
  EXPECT_EQ(second.code(), 0) << second.err;
  EXPECT_THAT(second.out, HasSubstr("world 2, restart 1\n"));
  nodes[0].signal(SIGCONT);
  const auto first = nodes[0].wait();
  EXPECT_EQ(first.code(), 5) << first.err;
  EXPECT_THAT(first.err, HasSubstr("stood still"));
  EXPECT_TRUE(all_end(numbers_after("pid", first.out)));
}

}  // namespace
}  // namespace lockstep::testing
