#include "lockstep/snapshot/snapshot.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "tests/comm/group_factory.h"
#include "tests/snapshot/snapshot_fixtures.h"
#include "tests/support/message_of.h"
#include "tests/support/places.h"
#include "tests/support/temporary_folder.h"
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/torch.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/nn/fused_optimizers.h"
#include "lockstep/parallel/optim/sharded_optimizer.h"
#include "lockstep/snapshot/snapshot_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Training = testing::SmallTraining;
using testing::expect_same_bits;
using testing::SmallNet;
using testing::TemporaryFolder;
using testing::train_steps;
using torch::optim::AdamOptions;

/// A start of a run on one rank, which goes on from what is there.
struct Start : Snapshot {
  Start(const fs::path& run, auto& training, nn::GradScaler* scaler = nullptr,
      ModelEma* ema = nullptr)
      : Snapshot(run, ProcessGroup()), from(load(*training.net, training.optimizer, scaler, ema)) {}

  SnapshotPosition from;
};

TEST(Snapshot, BeginsWhereNothingWasSaved) {
  const TemporaryFolder run;
  Training training;
  ::testing::internal::CaptureStderr();
  const Start snapshot(run.path(), training);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("there is no snapshot"));
  EXPECT_EQ(snapshot.from.epoch, 0);
  EXPECT_EQ(snapshot.from.step, 0);
  EXPECT_TRUE(snapshot.values().empty());
}

TEST(Snapshot, GoesOnBitForBit) {
  const TemporaryFolder run;
  Training whole;
  testing::seed_all(5);
  train_steps(whole.net, whole.optimizer, 0, 6);

  {
    Training first;
    Start snapshot(run.path(), first);
    testing::seed_all(5);
    train_steps(first.net, first.optimizer, 0, 3);
    snapshot.save(
        *first.net, first.optimizer, {.epoch = 2, .step = 3, .values = {{"name", "größer"}}});
    train_steps(first.net, first.optimizer, 3, 5);  // while it is written, and lost
  }
  Training second;
  const Start snapshot(run.path(), second);
  EXPECT_EQ(snapshot.from.epoch, 2);
  ASSERT_EQ(snapshot.from.step, 3);
  EXPECT_EQ(snapshot.values().at("name"), "größer");
  train_steps(second.net, second.optimizer, 3, 6);
  expect_same_bits(nn::named_state(*second.net), nn::named_state(*whole.net));
}

TEST(Snapshot, CountsStepsForWhoDoesNot) {
  const TemporaryFolder run;
  Training training;
  for (int life = 0; life < 2; ++life) {
    Start snapshot(run.path(), training);
    const std::int64_t first = snapshot.from.epoch;
    EXPECT_EQ(first, 3 * life);
    for (std::int64_t next = first + 1; next <= first + 3; ++next)
      snapshot.save(*training.net, training.optimizer, {.epoch = next});
    snapshot.wait();
    EXPECT_EQ(SnapshotFolder(run.path()).newest().manifest.step, 3 * (life + 1));
  }
}

TEST(Snapshot, NamesBrokenOnesAndTakesTheOneBefore) {
  const TemporaryFolder run;
  Training training;
  {
    Start snapshot(run.path(), training);
    for (const std::int64_t epoch : {1, 2})
      snapshot.save(*training.net, training.optimizer, {.epoch = epoch});
  }
  fs::remove(run.path() / "snapshots/step-00000002/optimizer.safetensors");
  ::testing::internal::CaptureStderr();
  Start snapshot(run.path(), training);
  EXPECT_EQ(snapshot.from.epoch, 1);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("step-00000002 cannot be used: "));
  EXPECT_THAT(said, HasSubstr("optimizer.safetensors"));
  EXPECT_THAT(said, HasSubstr("step-00000001: goes on with epoch 1, step 1"));
  snapshot.save(*training.net, training.optimizer, {.epoch = 2});  // in the broken one's place
  snapshot.wait();
  EXPECT_EQ(SnapshotFolder(run.path()).newest().manifest.step, 2);
}

TEST(Snapshot, RefusesAnotherModelAndAnotherOptimizer) {
  const TemporaryFolder run;
  {
    Training training;
    Start snapshot(run.path(), training);
    snapshot.save(*training.net, training.optimizer, {.epoch = 1});
  }
  torch::nn::Linear other(2, 2);
  torch::optim::Adam optimizer(other->parameters(), AdamOptions(0.01));
  EXPECT_THROW((void)Snapshot(run.path(), ProcessGroup()).load(*other, optimizer), DataError);
  SmallNet net;
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1));
  EXPECT_THROW((void)Snapshot(run.path(), ProcessGroup()).load(*net, sgd), DataError);
}

TEST(Snapshot, RefusesWhatAnotherProgramSaved) {
  const TemporaryFolder run;
  Training training;
  SnapshotSaver saver({.run = run.path()}, ProcessGroup());
  for (const char* state : {"{\"v\":1,\"step\":3}", "{\"kind\":\"library\"}", "[1]", "7", "{"}) {
    saver.save(1, {.files = {{"model.safetensors", {}}}, .state = state});
    saver.finish();
    EXPECT_THROW(Start(run.path(), training), DataError) << state;
  }
}

TEST(Snapshot, RefusesToSaveOverAnUnreadRunOrBackwards) {
  const TemporaryFolder run;
  Training training;
  Snapshot snapshot(run.path(), ProcessGroup());
  EXPECT_THROW(snapshot.save(*training.net, training.optimizer, {}), InvalidArgument);
  (void)snapshot.load(*training.net, training.optimizer);
  snapshot.save(*training.net, training.optimizer, {.step = 5});
  EXPECT_THROW(snapshot.save(*training.net, training.optimizer, {.step = 4}), InvalidArgument);
  EXPECT_THROW(snapshot.save(*training.net, training.optimizer, {.values = {{"a", "\xff"}}}),
      InvalidArgument);
}

TEST(Snapshot, KeepsTheScaler) {
  const TemporaryFolder run;
  Training training;
  const nn::GradScalerState state{.scale = 1024,
      .growth_factor = 4,
      .backoff_factor = 0.25,
      .growth_interval = 7,
      .growth_tracker = 5};
  {
    nn::GradScaler scaler;
    scaler.load(state);
    Start snapshot(run.path(), training, &scaler);
    snapshot.save(*training.net, training.optimizer, {.epoch = 1, .scaler = &scaler});
  }
  nn::GradScaler scaler;
  Start snapshot(run.path(), training, &scaler);
  EXPECT_EQ(scaler.state()->scale, 1024);
  EXPECT_EQ(scaler.state()->growth_tracker, 5);
  EXPECT_EQ(scaler.state()->growth_interval, 7);
  EXPECT_THROW((void)snapshot.load(*training.net, training.optimizer), DataError);
}

TEST(Snapshot, KeepsThePlaceInTheEpochAndTheAverages) {
  const TemporaryFolder run;
  Training first;
  ModelEma averages(*first.net, {.decay = 0.5});
  {
    Start snapshot(run.path(), first, nullptr, &averages);
    EXPECT_EQ(snapshot.samples(), 0);
    for (int step = 0; step < 3; ++step) {
      train_steps(first.net, first.optimizer, step, step + 1);
      averages.update();
    }
    EXPECT_THROW(snapshot.save(*first.net, first.optimizer, {.samples = -1}), InvalidArgument);
    snapshot.save(*first.net, first.optimizer, {.samples = 1280, .ema = &averages});
  }
  Training second;
  ModelEma restored(*second.net, {.decay = 0.5});
  Start snapshot(run.path(), second, nullptr, &restored);
  EXPECT_EQ(snapshot.samples(), 1280);
  EXPECT_EQ(restored.updates(), 3);
  const auto names = nn::named_state(*first.net);
  expect_same_bits(named_averages(restored, names), named_averages(averages, names));
  EXPECT_THROW((void)snapshot.load(*second.net, second.optimizer), DataError);
}

TEST(Snapshot, AveragesThatWereNotSavedAreNotLoaded) {
  const TemporaryFolder run;
  Training training;
  {
    Start snapshot(run.path(), training);
    snapshot.save(*training.net, training.optimizer, {.epoch = 1});
  }
  ModelEma averages(*training.net, {});
  EXPECT_THROW(Start(run.path(), training, nullptr, &averages), DataError);
}

TEST(Snapshot, WarnsOfWhatCannotBeWrittenAndGoesOn) {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  fs::create_directory(run);
  Training training;
  Start snapshot(run, training);
  std::ofstream(run / "snapshots") << "in the way";
  ::testing::internal::CaptureStderr();
  snapshot.save(*training.net, training.optimizer, {.epoch = 1});
  snapshot.wait();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("training goes on"));
  fs::remove(run / "snapshots");
  snapshot.save(*training.net, training.optimizer, {.epoch = 1});
  snapshot.wait();
  EXPECT_EQ(SnapshotFolder(run).newest().manifest.step, 2);
}

// One after the other: they draw from the one generator of all ranks.
std::vector<SmallNet> nets_for(int ranks) {
  std::vector<SmallNet> nets(static_cast<std::size_t>(ranks));
  for (SmallNet& net : nets) net->eval();  // dropout would draw, too
  return nets;
}

// Each rank computes the gradients of the whole batch: so all numbers of ranks do the same.
void train_sharded(const std::string& run, int ranks, int first, int last) {
  auto nets = nets_for(ranks);
  testing::run_ranks(ranks, [&](const ProcessGroup& world) {
    SmallNet& net = nets[static_cast<std::size_t>(world.rank())];
    net->to(testing::this_device());
    ShardedOptimizer optimizer(
        std::make_unique<nn::Adam>(net->parameters(), AdamOptions(0.01)), world);
    Snapshot snapshot(run, world);
    EXPECT_EQ(snapshot.load(*net, optimizer).step, first);
    train_steps(net, optimizer, first, last);
    snapshot.save(*net, optimizer, {.step = last});
  });
}

TEST(Snapshot, SharesOfAnOptimizerFitAnyNumberOfRanks) {
  SmallNet expected;
  expected->eval();
  nn::Adam optimizer(expected->parameters(), AdamOptions(0.01));
  train_steps(expected, optimizer, 0, 8);
  const TemporaryFolder run;
  train_sharded(run.path(), 2, 0, 2);
  train_sharded(run.path(), 1, 2, 4);
  train_sharded(run.path(), 4, 4, 6);
  train_sharded(run.path(), 3, 6, 8);
  SmallNet last;
  nn::Adam plain(last->parameters(), AdamOptions(0.5));
  EXPECT_EQ(Snapshot(run.path(), ProcessGroup()).load(*last, plain).step, 8);
  expect_same_bits(nn::named_state(*last), nn::named_state(*expected));
  expect_same_bits(optimizer_state(plain, nn::named_state(*last)).tensors,
      optimizer_state(optimizer, nn::named_state(*expected)).tensors);
  EXPECT_EQ(plain.param_groups()[0].options().get_lr(), 0.01);
}

TEST(Snapshot, ARankTakesOnlyTheShareThatItOwns) {
  const TemporaryFolder run;
  train_sharded(run.path(), 2, 0, 1);
  auto nets = nets_for(2);
  testing::run_ranks(2, [&](const ProcessGroup& world) {
    SmallNet& net = nets[static_cast<std::size_t>(world.rank())];
    net->to(testing::this_device());
    ShardedOptimizer optimizer(
        std::make_unique<nn::Adam>(net->parameters(), AdamOptions(0.01)), world);
    (void)Snapshot(run.path(), world).load(*net, optimizer);
    const auto owners = optimizer.owners()[0];
    const auto own = std::ranges::count(owners, world.rank());
    EXPECT_EQ(static_cast<std::ptrdiff_t>(optimizer.state().size()), own);
    EXPECT_LT(own, std::ssize(net->parameters()));
  });
}

// One that refused alone would leave the others waiting for it.
TEST(Snapshot, WhatCannotBeSavedIsRefusedOnAllRanks) {
  const TemporaryFolder run;
  auto nets = nets_for(2);
  testing::run_ranks(2, [&](const ProcessGroup& world) {
    SmallNet& net = nets[static_cast<std::size_t>(world.rank())];
    net->to(testing::this_device());
    nn::Adam adam(net->parameters(), AdamOptions(0.01));
    torch::optim::LBFGS unknown(net->parameters());
    Snapshot snapshot(run.path(), world);
    (void)snapshot.load(*net, adam);
    EXPECT_THROW(snapshot.save(*net, unknown, {.step = 1}), InvalidArgument);
    EXPECT_THROW(
        snapshot.save(*net, adam, {.step = 1, .values = {{"key", "\xff\xfe"}}}), InvalidArgument);
    snapshot.save(*net, adam, {.step = 1});
  });
}

// Who has the folder of a Snapshot.

// What a save leaves that has not ended.
fs::path begin_a_save(const fs::path& run) {
  const fs::path aside = run / "snapshots" / ".step-00000002.abc123";
  fs::create_directories(aside);
  return aside;
}

TEST(Snapshot, ASecondRunInItsFolderIsRefusedOnAllRanks) {
  const TemporaryFolder run;
  const fs::path aside = begin_a_save(run.path());
  Training training;
  {
    Start first(run.path(), training);
    EXPECT_FALSE(fs::exists(aside)) << "it was nobody's";
    begin_a_save(run.path());
    testing::run_ranks(2, [&](const ProcessGroup& world) {
      Snapshot second(run.path(), world);
      const auto load = [&] { (void)second.load(*training.net, training.optimizer); };
      EXPECT_THAT(testing::message_of<InvalidArgument>(load),
          HasSubstr("a run is under way in " + run.path().string()));
    });
    EXPECT_TRUE(fs::exists(aside)) << "the first one is writing it";
  }
  EXPECT_EQ(Start(run.path(), training).from.step, 0);
}

TEST(Snapshot, TheDeadGiveItsFolderFree) {
  const TemporaryFolder run;
  Training training;
  const pid_t child = ::fork();
  if (child == 0) {
    Start killed(run.path(), training);
    begin_a_save(run.path());
    ::kill(::getpid(), SIGKILL);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  ASSERT_TRUE(fs::exists(run.path() / ".lock"));
  EXPECT_EQ(Start(run.path(), training).from.step, 0);
  EXPECT_TRUE(fs::is_empty(run.path() / "snapshots")) << "nobody goes on with that";
}

// In /sys not even root makes a file.
TEST(Snapshot, AFolderThatMayOnlyBeReadIsRead) {
  Training training;
  EXPECT_EQ(Start("/sys/kernel", training).from.step, 0);
}

}  // namespace
}  // namespace lockstep
