// Kills ranks in mid-step: the run ends, reports which rank died of what, and leaves nothing but
// what the others have saved for its next start.

#include <chrono>
#include <csignal>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ostream>
#include <set>
#include <string>
#include <thread>

#include "tests/process/train/resumable_run.h"

namespace lockstep::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

std::set<std::string> our_shared_memory() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename();
    const bool is_a_folder_of_tests = name.starts_with("lockstep-test-");
    if (name.find("lockstep") != std::string::npos && !is_a_folder_of_tests) names.insert(name);
  }
  return names;
}

class TrainDeath : public ::testing::TestWithParam<int> {
 protected:
  IdxFiles data_{512, 64};
};

TEST_P(TrainDeath, ARankKilledInMidStepEndsTheRun) {
  const auto before = our_shared_memory();
  const ResumableRun run(
      "--nproc-per-node 2 --max-restarts 0 --max-time 5m --log-interval 1 " + data_.flag());
  const Ended ended = run.interrupted(SIGKILL, GetParam(), 1).with_code(137);
  EXPECT_THAT(ended.err, HasSubstr("rank " + std::to_string(GetParam())));
  EXPECT_THAT(ended.err, HasSubstr("SIGKILL"));
  EXPECT_TRUE(run.processes().empty()) << "a process was left";
  EXPECT_EQ(our_shared_memory(), before);
}

INSTANTIATE_TEST_SUITE_P(EitherRank, TrainDeath, ::testing::Values(0, 1));

// Whether a run is large enough for a snapshot to pay is seen after this time.
constexpr std::chrono::milliseconds kTrained{2000};

struct Net {
  std::string name;
  std::string flags;
  int victim = 0;
};

std::ostream& operator<<(std::ostream& out, const Net& net) { return out << net.name; }

// Statistics of batches are those of rank 0, where that one is left.
const Net kBatchNorm{
    "BatchNorm", "--model resnet18 --data mock --image-size 32 --batch-size 2 --max-steps 100", 1};
const Net kParts{"Parts",
    "--model mnist-small --data mock --batch-size 32 --grad-accum-steps 4 --model-ema "
    "--max-steps 400",
    0};

std::string without_snapshots(const Net& net) {
  return net.flags +
         " --nproc-per-node 2 --log-interval 1 --val-interval 0 --snapshot-interval none";
}

// Kills a rank once the run has trained for a while; returns the steps that rank 0 had recorded.
std::size_t kill_rank(const ResumableRun& run, Command& command, int victim) {
  EXPECT_TRUE(command.wait_until([&] { return run.lines() > 0; })) << command.err();
  std::this_thread::sleep_for(kTrained);
  const std::size_t steps = run.lines();
  EXPECT_EQ(::kill(run.rank(victim), SIGKILL), 0) << "it has ended already";
  return steps;
}

// The loss of a line may be that of one rank, where the killed one was lost before it told its own.
Outcome without_training_losses(const ResumableRun& run) {
  Outcome outcome = run.outcome();
  std::erase_if(outcome, [](const auto& item) {
    return item.first == "summary epochs" || item.first.starts_with("train step");
  });
  return outcome;
}

class TrainRescue : public ::testing::TestWithParam<Net> {};

TEST_P(TrainRescue, CostsAStepOfTheRun) {
  const ResumableRun whole(without_snapshots(GetParam())), killed(without_snapshots(GetParam()));
  whole.complete();
  Command command = killed.start();
  const std::size_t steps = kill_rank(killed, command, GetParam().victim);
  command.wait().with_code(0);
  EXPECT_EQ(killed.summary()["restarts"], 1);
  const std::string snapshot = killed.summary()["resumed_from"].dump();
  ASSERT_THAT(snapshot, HasSubstr("snapshots/step-"));
  EXPECT_GE(std::stoul(snapshot.substr(snapshot.rfind('-') + 1)) + 1, steps);
  expect_same(without_training_losses(whole), without_training_losses(killed));
  EXPECT_EQ(whole.outcome().size(), killed.outcome().size())
      << "a line of metrics.jsonl is missing";
  EXPECT_THAT(killed.snapshot_names(), Each(Not(StartsWith(".step"))));
}

INSTANTIATE_TEST_SUITE_P(Nets, TrainRescue, ::testing::Values(kBatchNorm, kParts),
    [](const auto& net) { return net.param.name; });

// The launcher does not start it again: a later start by hand finds what was saved.
TEST(TrainRescueByHand, ServesALaterStart) {
  const ResumableRun run(without_snapshots(kParts));
  Command command = run.start("--max-restarts 0");
  const std::size_t steps = kill_rank(run, command, 1);
  EXPECT_EQ(command.wait().code(), 137);
  ASSERT_FALSE(run.newest().path.empty());
  EXPECT_GE(static_cast<std::size_t>(run.newest().manifest.step) + 1, steps);
}

TEST(TrainRescueByHand, CanBeForbidden) {
  const ResumableRun run(without_snapshots(kParts));
  Command command = run.start("--max-restarts 0 --no-rescue");
  kill_rank(run, command, 1);
  EXPECT_EQ(command.wait().code(), 137);
  EXPECT_THAT(run.snapshot_names(), IsEmpty());
}

}  // namespace
}  // namespace lockstep::testing
