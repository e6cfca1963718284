// `lockstep train` over processes, each with emulated devices of its own, by an NCCL that it loads
// as it does NVIDIA's: see tests/accelerator.

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <gmock/gmock.h>
#include <string>

#include "tests/process/plugin/plugin_flag.h"
#include "tests/process/train/idx_files.h"
#include "tests/process/train/resumable_run.h"
#include "tests/process/train/trained_run.h"

#include "lockstep/core/error.h"
#include "lockstep/net/endpoint.h"
#include "lockstep/record/profile/profile.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string flags_on(const std::string& device, const IdxFiles& data) {
  return data.flag() + " --device " + device +
         " --model mnist-small --epochs 2 --batch-size 16 --opt sgd --log-interval 1"
         " --snapshot-interval 5steps --no-rescue ";
}

class EmulatedTrain : public ::testing::TestWithParam<TrainWay> {
 protected:
  std::string flags(const std::string& device = "emulated") const {
    return flags_on(device, data_) + "--nproc-per-node 2 " + GetParam().flags + " ";
  }

  IdxFiles data_{320, 64};
};

// Of numbers in float32; infinite where one is none.
float largest_difference(const std::string& bytes, const std::string& others) {
  float largest = bytes.size() == others.size() ? 0 : INFINITY;
  for (std::size_t at = 0; at < std::min(bytes.size(), others.size()); at += sizeof(float)) {
    float one = 0, other = 0;
    std::memcpy(&one, bytes.data() + at, sizeof one);
    std::memcpy(&other, others.data() + at, sizeof other);
    const float difference = std::abs(one - other);
    largest = std::max(largest, std::isnan(difference) ? INFINITY : difference);
  }
  return largest;
}

TEST_P(EmulatedTrain, EndsWithTheParametersOfTheCpu) {
  const TrainedRun device = trained_run(flags()), cpu = trained_run(flags("cpu"));
  EXPECT_LT(cpu.losses().back(), 0.9 * cpu.losses().front()) << "else it proves nothing";
  ASSERT_EQ(device.last.size(), cpu.last.size());
  for (const auto& [name, bytes] : cpu.last)
    EXPECT_LE(largest_difference(bytes, device.last.at(name)), 1e-5) << name;
}

TEST_P(EmulatedTrain, TakesTheDeviceOfTheLocalRank) {
  const TemporaryFolder folder;
  const Ended ended =
      run_command(words("train --max-steps 1 --output " + folder.file("run") + " " + flags()),
          {"NCCL_DEBUG=INFO"});
  ASSERT_EQ(ended.code(), 0) << ended.err;
  EXPECT_THAT(ended.err,
      AllOf(HasSubstr("computing on emulated:0 and the like on 1 more ranks here; 2 more are idle"),
          HasSubstr("emulated nccl: rank 0 of 2 on device 0")));
  EXPECT_THAT(contents(folder.file("run/logs/rank-1.log")),
      HasSubstr("emulated nccl: rank 1 of 2 on device 1"));
}

TEST_P(EmulatedTrain, GoesOnAfterAKillAndAfterAStopAsIfNothingHadBeen) {
  const std::string long_enough = flags() + "--epochs 8 ";
  const ResumableRun whole(long_enough), killed(long_enough), stopped(long_enough);
  whole.complete();
  const Ended ended = killed.interrupted(SIGKILL, 1, 8).with_code(0);
  EXPECT_THAT(ended.err, HasSubstr("restart 1 of 3: rank 1 of 2"));
  EXPECT_TRUE(killed.processes().empty()) << "a process was left";
  expect_same(whole.outcome(), killed.outcome());
  stopped.interrupted(SIGUSR1, 1, 8).with_code(75);
  EXPECT_LT(stopped.summary()["steps"], whole.summary()["steps"]);
  stopped.complete();
  expect_same(whole.outcome(), stopped.outcome());
}

// That each operator is waited for, host_waits_test.cpp counts.
TEST_P(EmulatedTrain, ProfilesItsSteps) {
  const TemporaryFolder folder;
  const Ended ended = run_command(words("train --output " + folder.file("run") + " " + flags() +
                                        "--profile --epochs 4 --val-interval never"));
  ASSERT_EQ(ended.code(), 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("each operator was waited for; without that a step takes"));
  const std::string file = folder.file("run/profile/profile.json");
  const RunProfile profile = read_profile(contents(file), file);
  ASSERT_EQ(profile.ranks.size(), 2U);
  for (const RankProfile& rank : profile.ranks) {
    EXPECT_EQ(rank.steps, 10);
    EXPECT_GT(rank.unwaited_step.value_or(0), 0);
    EXPECT_FALSE(rank.layers.empty());
  }
}

// Where ranks share a device, NCCL is not asked; which one each takes, chosen_devices_test says.
TEST_P(EmulatedTrain, MeetsByWayOfTheHostWhereDevicesAreShared) {
  const TemporaryFolder folder;
  const Ended ended = run_command(
      words("train --share-devices --max-steps 4 --output " + folder.file("run") + " " + flags()),
      {"NCCL_DEBUG=INFO"});
  ASSERT_EQ(ended.code(), 0) << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("computing on emulated:0"), Not(HasSubstr("nccl"))));
}

INSTANTIATE_TEST_SUITE_P(Ways, EmulatedTrain,
    ::testing::Values(TrainWay{"ddp", "--parallel ddp"},
        TrainWay{"pp", "--parallel pp --balance count --chunks 4"}),
    [](const auto& way) { return way.param.name; });

/// A signal after which a rank does not answer.
class LostRank : public ::testing::TestWithParam<int> {
 protected:
  // One of two hosts, whose launcher knows nothing of the other's rank.
  Command host(int number) const {
    Words all = words(concat("run --nnodes 2 --node-rank ", number,
        " --nproc-per-node 1 --master-addr 127.0.0.1 --master-port ", port_, " --"));
    all.push_back(built_lockstep());
    const Words train = words("train --timeout 10s --repeat 2000 --output " + run_.output() + " " +
                              flags_on("emulated", data_));
    all.insert(all.end(), train.begin(), train.end());
    return Command(all);
  }

  const IdxFiles data_{320, 64};
  const ResumableRun run_{""};
  const int port_ = net::ReservedPort().number();
};

TEST_P(LostRank, EndsTheOtherByItsTimeout) {
  Command first = host(0), second = host(1);
  ASSERT_TRUE(first.wait_until([&] { return run_.lines() >= 3; }));
  const pid_t lost = run_.rank(1);
  ASSERT_GT(lost, 0);
  ASSERT_EQ(::kill(lost, GetParam()), 0);
  first.wait().with_code(5);
  ::kill(lost, SIGKILL);
  EXPECT_EQ(second.wait().code(), 137);
  EXPECT_TRUE(run_.processes().empty()) << "a process was left";
}

INSTANTIATE_TEST_SUITE_P(By, LostRank, ::testing::Values(SIGKILL, SIGSTOP),
    [](const auto& signal) { return std::string(signal.param == SIGKILL ? "death" : "silence"); });

// Whole numbers and a picture: all of a batch goes there, in training and evaluation.
TEST(EmulatedInputs, GiveTheLossesOfTheCpu) {
  for (const std::string way : {"", "--parallel dp --places 2 "}) {
    const std::string flags = concat(plugin_flag("shown"),
        "--data tables --model table-net --opt sgd --batch-size 2 --epochs 2 ", way, "--device ");
    const TrainedRun device = trained_run(flags + "emulated"), cpu = trained_run(flags + "cpu");
    expect_near(device.losses(), cpu.losses(), way.empty() ? 8 : 4);
    expect_near(device.values("val", "loss"), cpu.values("val", "loss"), 2);
  }
}

// Ranks that are threads, by the library.
TEST(EmulatedDevices, PassTheCheckOfDevices) {
  const Ended ended = run_command({"env", "--check-devices"}).with_code(0);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("emulated:0 and emulated:1: collectives by NCCL 2.14.9"),
                             HasSubstr("verdict: everything that was tried works")));
}

}  // namespace
}  // namespace lockstep::testing
