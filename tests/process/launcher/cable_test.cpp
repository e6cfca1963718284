// Nodes on hosts that are made within this machine, whose cables are cut, or slow. This needs root.

#include <csignal>
#include <gmock/gmock.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/process/command.h"
#include "tests/process/launcher/made_hosts.h"

#include "lockstep/core/environment.h"
#include "lockstep/launch/hosts/made_hosts.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Cables : public MadeHosts {
 protected:
  /// Joins hosts, and starts on each a launcher of one rank that trains and saves often.
  void start(int hosts, std::int64_t rate, const std::string& flags, const std::string& training) {
    network_ =
        std::make_unique<launch::HostNetwork>(launch::NetworkOptions{.hosts = hosts, .rate = rate});
    const std::string meeting = "run --nproc-per-node 1 --rdzv-backend lockstep --rdzv-endpoint " +
                                launch::HostNetwork::address(0) + ":29400 " + flags + " -- ";
    const std::string line =
        meeting + built_lockstep() + " train --data mock --parallel ddp " +
        "--epochs 100000 --val-interval never --log-interval 1 --progress none " + "--output " +
        folder_.file("run") + " " + training;
    for (int host = 0; host < hosts; ++host) {
      const launch::HostNetwork::Visit visit(*network_, host);
      const Words variables{
          "LOCKSTEP_SECRET=known to these nodes", "LOCKSTEP_TEST_HOST=" + std::to_string(host)};
      nodes_.push_back(std::make_unique<Command>(words(line), variables));
    }
  }

  void cut(int host) const {
    const launch::HostNetwork::Visit visit(*network_, host);
    launch::run_tool({"ip", "link", "set", launch::HostNetwork::kInterface, "down"});
  }

  Command& node(std::size_t number) { return *nodes_[number]; }

  std::ptrdiff_t steps() const {
    return count_of("\"step\"", contents_so_far(folder_.file("run") + "/metrics.jsonl"));
  }

  nlohmann::json summary() const {
    return nlohmann::json::parse(contents(folder_.file("run") + "/summary.json"));
  }

 private:
  TemporaryFolder folder_;
  std::unique_ptr<launch::HostNetwork> network_;
  std::vector<std::unique_ptr<Command>> nodes_;
};

constexpr const char* kLittle = "--model toy --snapshot-interval 20steps --max-steps ";

TEST_F(Cables, OfOneThatIsCutLeavesTheOthersInASmallerWorld) {
  start(3, 0, "--nnodes 2:3", std::string(kLittle) + "400");
  node(0).wait_until([&] { return steps() > 30; });
  cut(2);
  for (const std::size_t number : {0U, 1U}) {
    node(number).wait().with_code(0);
  }
  EXPECT_EQ(summary()["world_size"], 2);
  EXPECT_THAT(summary()["resumed_from"].get<std::string>(), HasSubstr("snapshots/step-"));
  const auto alone = node(2).wait().with_code(5);
  EXPECT_THAT(alone.err, HasSubstr("lost the node that serves the rendezvous"));
}

TEST_F(Cables, ThatAreCutEndAWorldOfAFixedSize) {
  start(2, 0, "--nnodes 2", std::string(kLittle) + "1000000");
  node(0).wait_until([&] { return steps() > 30; });
  cut(1);
  for (const std::size_t number : {0U, 1U}) {
    EXPECT_THAT(node(number).wait().with_code(5).err, HasSubstr("lost"));
  }
}

// 4 Mbit/s: a step's gradients take some seconds, which the nodes' signs of life have to pass.
TEST_F(Cables, ThatAreSlowEndNothing) {
  start(2, 4'000'000, "--nnodes 2 --hang-timeout 1",
      "--model mnist-small --max-steps 3 --batch-size 8");
  for (const std::size_t number : {0U, 1U}) {
    const auto ended = node(number).wait().with_code(0);
    EXPECT_THAT(ended.err, Not(HasSubstr("lost")));
    EXPECT_THAT(ended.err, HasSubstr("without progress; nobody here is behind"));
  }
  EXPECT_EQ(summary()["restarts"], 0);
  EXPECT_EQ(summary()["world_size"], 2);
}

// A pipeline over two hosts that a slow link connects: it trains as the serial model, and ends when
// the other host is lost or silent.

class PipelineOverHosts : public MadeHosts {
 protected:
  static Words probe(const std::string& arguments) {
    return words("hosts --count 2 --rate 20mbit -- lockstep run --nproc-per-node 1 -- " +
                 *environment("LOCKSTEP_BINARY_DIR") + "/pipeline_probe " + arguments);
  }

  /// Sends a signal to rank 1 when the pipeline is at work, and returns how the run ended.
  static Ended after(int signal, const std::string& timeout) {
    const std::string mark =
        "LOCKSTEP_TEST_MARK=pipeline-" + std::to_string(::getpid()) + "-" + std::to_string(signal);
    Command run(probe("endless " + timeout), {mark});
    run.wait_for_lines(4);
    const auto pids = processes_with_variable(mark);
    for (const pid_t pid : pids) {
      if (variable_of(pid, "RANK") == "1") ::kill(pid, signal);
    }
    Ended ended = run.wait();
    EXPECT_TRUE(all_end(pids));
    return ended;
  }
};

TEST_F(PipelineOverHosts, TrainsAsTheSerialModel) {
  const Ended run = run_command(probe("equal 60")).with_code(0);
  EXPECT_THAT(run.out, HasSubstr("rank 0: as the serial model"));
  EXPECT_THAT(run.out, HasSubstr("rank 1: as the serial model"));
}

TEST_F(PipelineOverHosts, ARankThatDiesEndsTheOther) {
  const Ended run = after(SIGKILL, "100");
  EXPECT_THAT(run.out, HasSubstr("lost: "));
  EXPECT_THAT(run.out, HasSubstr("another rank has ended or given up, or is out of reach"));
  EXPECT_NE(run.code(), 0);
}

TEST_F(PipelineOverHosts, ARankThatIsSilentEndsTheOtherAtTheDeadline) {
  const Ended run = after(SIGSTOP, "5");
  EXPECT_THAT(run.out, HasSubstr("out of time: "));
  EXPECT_EQ(run.code(), 5) << run.err;
}

}  // namespace
}  // namespace lockstep::testing
