// `lockstep train` on several nodes that find each other.

#include <chrono>
#include <filesystem>
#include <gmock/gmock.h>
#include <map>
#include <nlohmann/json.hpp>
#include <signal.h>
#include <thread>

#include "tests/process/launcher/nodes.h"

#include "lockstep/core/text.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class NodesThatTrain : public ::testing::Test {
 protected:
  /// Returns the words that train a little net and save often.
  Words training(const std::string& name, int steps = 600) const {
    return training_in(folder_.file(name), steps);
  }

  static Words training_in(const std::string& output, int steps = 600) {
    return words(built_lockstep() +
                 " train --model toy --data mock --backend gloo --parallel ddp --epochs 100000 "
                 "--resume auto --max-steps " +
                 std::to_string(steps) +
                 " --val-interval never --snapshot-interval 50steps --log-interval 1 "
                 "--progress none --output " +
                 output);
  }

  /// Runs it on so many nodes to its end.
  void complete(int nodes, const Words& program) {
    Nodes all("--nnodes " + std::to_string(nodes));
    for (int node = 0; node < nodes; ++node) all.start_program(program);
    for (std::size_t node = 0; node < static_cast<std::size_t>(nodes); ++node) {
      all[node].wait().with_code(0);
    }
  }

  nlohmann::json summary(const std::string& name) const {
    return nlohmann::json::parse(contents(folder_.file(name) + "/summary.json"));
  }

  /// Returns the last step that rank 0 has reported.
  std::int64_t step(const std::string& name) const {
    const std::string text = contents_so_far(folder_.file(name) + "/metrics.jsonl");
    return count_of("\"step\"", text);
  }

  TemporaryFolder folder_;
};

TEST_F(NodesThatTrain, EndWithTheSameParametersAfterAKill) {
  complete(2, training("whole"));
  Nodes nodes("--nnodes 2 --max-restarts 3");
  nodes.start_program(training("killed"));
  nodes.start_program(training("killed"));
  nodes[0].wait_until([&] { return step("killed") > 30; });
  const auto ranks = processes_with_variable("LOCKSTEP_STORE=" + nodes.endpoint());
  ASSERT_EQ(ranks.size(), 4U);
  ::kill(ranks[3], SIGKILL);
  const auto first = nodes[0].wait().with_code(0), second = nodes[1].wait().with_code(0);
  EXPECT_EQ(summary("killed")["restarts"], 1);
  EXPECT_EQ(summary("killed")["world_size"], 4);
  EXPECT_EQ(summary("killed")["parameters_hash"], summary("whole")["parameters_hash"]);
  EXPECT_THAT(first.err + second.err, HasSubstr("training resumed"));
}

// As if all of them had been stopped at the snapshot, and fewer begun there.
TEST_F(NodesThatTrain, GoOnInASmallerWorld) {
  Nodes nodes("--nnodes 1:2");
  nodes.start_two_of(training("run"));
  nodes[0].wait_until([&] { return step("run") > 120; });
  nodes[1].signal(SIGKILL);
  nodes[0].wait().with_code(0);
  EXPECT_EQ(summary("run")["world_size"], 2);
  const std::string snapshot = summary("run")["resumed_from"];
  ASSERT_THAT(snapshot, HasSubstr("snapshots/step-"));
  const int step = std::stoi(snapshot.substr(snapshot.rfind('-') + 1));
  complete(2, training("stopped", step));
  complete(1, training("stopped"));
  EXPECT_EQ(summary("stopped")["parameters_hash"], summary("run")["parameters_hash"]);
}

// Without a snapshot, what the ranks that are left hold in memory is what the smaller world goes on
// from.
TEST_F(NodesThatTrain, GoOnFromTheMemoryOfThoseThatAreLeft) {
  Words program = training("run", 1500);
  program.insert(program.end(), {"--snapshot-interval", "none"});
  Nodes nodes("--nnodes 1:2");
  nodes.start_two_of(program);
  nodes[0].wait_until([&] { return step("run") > 120; });
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const std::int64_t before = step("run");
  nodes[1].signal(SIGKILL);
  const auto first = nodes[0].wait().with_code(0);
  EXPECT_EQ(summary("run")["world_size"], 2);
  const std::string snapshot = summary("run")["resumed_from"].dump();
  ASSERT_THAT(snapshot, HasSubstr("snapshots/step-")) << first.err;
  EXPECT_GE(std::stoi(snapshot.substr(snapshot.rfind('-') + 1)) + 1, before);
}

/// Nodes with disks of their own: a folder for each.
class NodesApart : public NodesThatTrain {
 protected:
  void start(Nodes& nodes, const std::string& host) {
    std::filesystem::create_directory(folder_.file(host));
    Words program = training_in("run");
    program.insert(program.end(), copies_.begin(), copies_.end());
    const auto before = std::filesystem::current_path();
    std::filesystem::current_path(folder_.file(host));  // a host's own
    nodes.start_program(program, {"LOCKSTEP_TEST_HOST=" + host});
    std::filesystem::current_path(before);
  }

  Words copies_ = {"--snapshot-copies", "2"};

  bool has_snapshot(const std::string& host) const {
    return std::filesystem::exists(folder_.file(host) + "/run/snapshots/LATEST");
  }

  std::string undisturbed() {
    complete(2, training("whole"));
    return summary("whole")["parameters_hash"];
  }
};

TEST_F(NodesApart, EndWithTheSameParametersThoughAHostIsReplaced) {
  Nodes nodes("--nnodes 2 --max-restarts 3");
  start(nodes, "a");
  nodes.await_first();
  start(nodes, "b");
  nodes[0].wait_until([&] { return has_snapshot("a") && has_snapshot("b"); });
  nodes[1].signal(SIGKILL);
  nodes[0].wait_until([&] { return Nodes::says(nodes[0], "waiting: 1 of 2"); });
  start(nodes, "c");
  nodes[0].wait().with_code(0);
  const auto last = nodes[2].wait().with_code(0);
  EXPECT_THAT(last.err, Not(HasSubstr("training resumed"))) << "it was not there when b was lost";
  EXPECT_EQ(summary("a/run")["parameters_hash"], undisturbed());
  EXPECT_TRUE(has_snapshot("c"));
}

TEST_F(NodesApart, ThatShareTheFolderAfterAllAreRefused) {
  Nodes nodes("--nnodes 2");
  Words program = training("run");
  program.insert(program.end(), {"--snapshot-copies", "2"});
  for (const std::string host : {"a", "b"})
    nodes.start_program(program, {"LOCKSTEP_TEST_HOST=" + host});
  const auto first = nodes[0].wait(), second = nodes[1].wait();
  EXPECT_EQ(first.code(), 2) << first.err;
  EXPECT_THAT(
      first.err + second.err, HasSubstr("hosts that share a folder need no --snapshot-copies"));
}

// A host joins with the folder of an older run of the same command.
TEST_F(NodesApart, OfDifferentRunsAreRefusedAndKeepWhatTheyHave) {
  const auto snapshots = [&] {
    std::map<std::string, std::string> all;
    for (const std::string host : {"a", "b"}) {
      const std::string folder = folder_.file(host) + "/run/snapshots";
      for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
        if (entry.is_regular_file()) all[entry.path().string()] = contents(entry.path());
    }
    return all;
  };
  for (const std::string host : {"a", "b"}) {
    Nodes alone("--nnodes 1");
    start(alone, host);
    alone[0].wait().with_code(0);
  }
  const auto before = snapshots();
  for (const Words& copies : {copies_, Words{}}) {
    copies_ = copies;
    Nodes nodes("--nnodes 2");
    start(nodes, "a");
    nodes.await_first();
    start(nodes, "b");
    const auto first = nodes[0].wait(), second = nodes[1].wait();
    EXPECT_EQ(first.code(), 3) << first.err;
    EXPECT_THAT(first.err + second.err, HasSubstr("snapshots of different runs"));
    EXPECT_TRUE(snapshots() == before);
  }
}

TEST_F(NodesApart, GoOnWhereAHostOfAnotherRunJoins) {
  Nodes alone("--nnodes 1");
  start(alone, "b");
  ASSERT_EQ(alone[0].wait().code(), 0);
  const std::string theirs = summary("b/run").dump();
  Nodes nodes("--nnodes 1:2 --rdzv-conf last_call_timeout=0");
  start(nodes, "a");
  nodes[0].wait_until([&] { return has_snapshot("a"); });
  start(nodes, "b");
  nodes[0].wait().with_code(0);
  const auto foreign = nodes[1].wait().with_code(2);
  EXPECT_THAT(foreign.err, HasSubstr("this node is refused: its output folder holds run "));
  EXPECT_EQ(summary("b/run").dump(), theirs);
}

TEST_F(NodesApart, GoOnWithoutTheHostThatServedAndWrote) {
  Nodes nodes("--nnodes 1:2");
  start(nodes, "a");
  nodes.await_first();
  start(nodes, "b");
  nodes[1].wait_until([&] { return has_snapshot("b"); });
  nodes[0].signal(SIGKILL);
  nodes[1].wait().with_code(0);
  EXPECT_EQ(summary("b/run")["world_size"], 2);
  EXPECT_THAT(
      summary("b/run")["resumed_from"].get<std::string>(), HasSubstr("run/snapshots/step-"));
}

}  // namespace
}  // namespace lockstep::testing
