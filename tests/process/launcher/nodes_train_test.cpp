// `lockstep train` on several nodes that find each other.

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <signal.h>

#include "tests/process/launcher/nodes.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;

class NodesThatTrain : public ::testing::Test {
 protected:
  /// Returns the words that train a little net and save often.
  Words training(const std::string& name) const {
    return words(
        built_lockstep() +
        " train --model toy --data mock --backend gloo --parallel ddp --epochs 100000 "
        "--max-steps 600 --val-interval never --snapshot-interval 50steps --log-interval 1 "
        "--progress none --output " +
        folder_.file(name));
  }

  nlohmann::json summary(const std::string& name) const {
    return nlohmann::json::parse(contents(folder_.file(name) + "/summary.json"));
  }

  /// Returns the last step that rank 0 has reported.
  std::int64_t step(const std::string& name) const {
    const std::string text = contents(folder_.file(name) + "/metrics.jsonl");
    return count_of("\"step\"", text);
  }

  TemporaryFolder folder_;
};

TEST_F(NodesThatTrain, EndWithTheSameParametersAfterAKill) {
  Nodes whole("--nnodes 2");
  whole.start_program(training("whole"));
  whole.start_program(training("whole"));
  const auto undisturbed = whole[0].wait();
  ASSERT_EQ(undisturbed.code(), 0) << undisturbed.err;
  ASSERT_EQ(whole[1].wait().code(), 0);

  Nodes nodes("--nnodes 2 --max-restarts 3");
  nodes.start_program(training("killed"));
  nodes.start_program(training("killed"));
  nodes[0].wait_until([&] { return step("killed") > 30; });
  const auto ranks = processes_with_variable("LOCKSTEP_STORE=" + nodes.endpoint());
  ASSERT_EQ(ranks.size(), 4U);
  ::kill(ranks[3], SIGKILL);
  const auto first = nodes[0].wait(), second = nodes[1].wait();
  EXPECT_EQ(first.code(), 0) << first.err;
  EXPECT_EQ(second.code(), 0) << second.err;
  EXPECT_EQ(summary("killed")["restarts"], 1);
  EXPECT_EQ(summary("killed")["world_size"], 4);
  EXPECT_EQ(summary("killed")["parameters_hash"], summary("whole")["parameters_hash"]);
  EXPECT_THAT(first.err + second.err, HasSubstr("training resumed"));
}

TEST_F(NodesThatTrain, GoOnInASmallerWorld) {
  Nodes nodes("--nnodes 1:2");
  nodes.start_program(training("run"));
  nodes[0].wait_until([&] { return Nodes::says(nodes[0], "waiting: 1 of 1"); });
  nodes.start_program(training("run"));
  nodes[0].wait_until([&] { return step("run") > 120; });
  nodes[1].signal(SIGKILL);
  const auto first = nodes[0].wait();
  EXPECT_EQ(first.code(), 0) << first.err;
  EXPECT_EQ(summary("run")["world_size"], 2);
  EXPECT_THAT(summary("run")["resumed_from"].get<std::string>(), HasSubstr("snapshots/step-"));
}

}  // namespace
}  // namespace lockstep::testing
