// Strangers at the port of a rendezvous, while nodes meet and run there.

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/socket.h>

#include "tests/process/launcher/nodes.h"
#include "tests/support/message_of.h"

#include "lockstep/core/error.h"
#include "lockstep/net/client.h"
#include "lockstep/net/endpoint.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

const Words kSecret{"LOCKSTEP_SECRET=of sixteen bytes or more"};

/// Connections of one who knows nothing.
class Strangers {
 public:
  explicit Strangers(int port) : place_{.host = "127.0.0.1", .port = port} {}

  void come(int count, const std::string& saying = "") {
    for (int i = 0; i < count; ++i) {
      FileDescriptor socket = net::connect_to(place_, std::chrono::seconds(5)).socket;
      if (!socket) continue;
      ::send(socket.get(), saying.data(), saying.size(), MSG_NOSIGNAL);
      here_.push_back(std::move(socket));
    }
  }

  void leave() { here_.clear(); }

 private:
  net::Endpoint place_;
  std::vector<FileDescriptor> here_;
};

/// Says all that strangers say, and a thousand connections without a word, 250 at a time.
void besiege(int port) {
  Strangers strangers(port);
  for (const std::string& saying :
      {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("\x16\x03\x01\x02\0\1\0\1\xfc\3\3", 11),
          std::string(70000, '\xff'), std::string("\0\0", 2), std::string("\0\0\0\x20half", 8)})
    strangers.come(5, saying);
  for (int round = 0; round < 4; ++round) {
    strangers.come(250);
    if (round < 3) strangers.leave();
  }
}

TEST(NodesUnderAttack, MeetAndRunAllTheSame) {
  const TemporaryFolder folder;
  const std::string script = "echo ready; while [ ! -e " + folder.file("go") +
                             " ]; do sleep 0.01; done; echo rank $RANK of $WORLD_SIZE";
  Nodes nodes("--nnodes 2");
  nodes.start(script, kSecret).wait_until([&] { return Nodes::says(nodes[0], "waiting: 1 of 2"); });
  Strangers silent(nodes.port());
  silent.come(200);
  nodes.start(script, kSecret);
  nodes[0].wait_for_lines(2);
  besiege(nodes.port());
  folder.write("go", {});
  nodes[0].wait().with_code(0);
  EXPECT_THAT(nodes[1].wait().with_code(0).out, HasSubstr("rank 3 of 4\n"));
}

TEST(NodesUnderAttack, LetNobodyInWithAnotherSecret) {
  Nodes nodes("--nnodes 2");
  nodes.start("true", kSecret).wait_until([&] { return Nodes::says(nodes[0], "waiting: 1 of 2"); });
  for (const Words& variables : {Words{"LOCKSTEP_SECRET=another of sixteen bytes"},
           Words{"PET_RDZV_ID=other", kSecret[0]}, Words{}}) {
    const auto end = nodes.start("true", variables).wait().with_code(2);
    EXPECT_THAT(end.err, HasSubstr("the secret or the run's id is another than here"));
  }
  nodes.start("true", kSecret);
  EXPECT_EQ(nodes[0].wait().code(), 0);
}

/// Returns the key that a rank was given. While it becomes another program it has no variables.
std::string key_of(pid_t rank) {
  std::string key;
  eventually([&] { return !(key = variable_of(rank, "LOCKSTEP_STORE_KEY")).empty(); });
  return key;
}

net::ClientOptions as_rank(const Nodes& nodes, const std::string& key, std::int64_t generation) {
  return {.endpoint = {.host = "127.0.0.1", .port = nodes.port()},
      .hello = {.job = "none", .role = net::Role::kRank, .generation = generation},
      .key = net::key_of_hex(key),
      .timeout = std::chrono::seconds(20)};
}

TEST(NodesUnderAttack, RanksOfAnOldGenerationStayOutside) {
  Nodes nodes("--nnodes 2 --max-restarts 1");
  nodes.start_two("echo pid $$; exec sleep 600", kSecret);
  const auto old = numbers_after("pid", nodes[0].wait_for_lines(2));
  ASSERT_EQ(old.size(), 2U);
  const std::string key = key_of(old[1]);
  EXPECT_NO_THROW({ const net::Client inside(as_rank(nodes, key, 1)); });
  ::kill(old[0], SIGKILL);
  const auto all = numbers_after("pid", nodes[0].wait_for_lines(4));
  ASSERT_EQ(all.size(), 4U);
  const std::string next = key_of(all[3]);
  EXPECT_NE(next, key);
  EXPECT_THAT(message_of<CommError>([&] { net::Client{as_rank(nodes, key, 1)}; }),
      HasSubstr("generation 1 of the world is over"));
  EXPECT_THROW(net::Client{as_rank(nodes, key, 2)}, InvalidArgument) << "in disguise";
  EXPECT_NO_THROW({ const net::Client inside(as_rank(nodes, next, 2)); });
  for (const std::size_t node : {0U, 1U}) nodes[node].signal(SIGTERM);
  for (const std::size_t node : {0U, 1U}) nodes[node].wait();
  EXPECT_TRUE(all_end(all));
}

}  // namespace
}  // namespace lockstep::testing
