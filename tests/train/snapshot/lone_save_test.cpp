#include "lockstep/snapshot/lone_save.h"

#include <filesystem>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <system_error>

#include "tests/comm/group_factory.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/file_size_limit.h"
#include "tests/train/snapshot/snapshot_parts.h"
#include "tests/train/snapshot/training_steps.h"

#include "lockstep/core/error.h"
#include "lockstep/liveness/own_slot.h"
#include "lockstep/nn/fused_optimizers.h"
#include "lockstep/parallel/optim/sharded_optimizer.h"
#include "lockstep/snapshot/snapshot.h"
#include "lockstep/snapshot/snapshot_names.h"
#include "lockstep/snapshot/snapshot_reader.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using testing::names_in;
using testing::SmallTraining;
using testing::TemporaryFolder;

// What a rank of the number saves of a step.
SnapshotPart part(std::int64_t step, int rank = 0, std::int64_t size = 100) {
  SnapshotPart part;
  part.files["model.safetensors"] = {
      .tensors = testing::named("weight", torch::full({size}, static_cast<double>(step)))};
  part.files["rank-00000.safetensors"] = {.tensors = testing::named("own", torch::full({1}, rank))};
  part.state = concat("{\"step\":", step, "}");
  return part;
}

SnapshotReader newest(const TemporaryFolder& run) {
  return SnapshotReader(SnapshotFolder(run.path()).newest());
}

TEST(LoneSave, MakesAWholeSnapshot) {
  const TemporaryFolder run;
  EXPECT_TRUE(save_alone(run.path(), 2, 7, part(7)));
  const SnapshotReader reader = newest(run);
  EXPECT_EQ(reader.step(), 7);
  EXPECT_EQ(reader.ranks(), 1);
  EXPECT_EQ(reader.state(), "{\"step\":7}");
  testing::expect_same_bits(reader.model()["weight"], torch::full({100}, 7.0));
}

TEST(LoneSave, KeepsAsManyAsOthersDoAndTheBest) {
  const TemporaryFolder run;
  for (const std::int64_t step : {1, 2, 3, 4}) {
    SnapshotPart whole = part(step);
    whole.best = step == 1;
    EXPECT_TRUE(save_alone(run.path(), 2, step, whole));
  }
  EXPECT_THAT(names_in(fs::path(run.path()) / "snapshots"),
      ElementsAre("LATEST", "best", "step-00000001", "step-00000003", "step-00000004"));
}

TEST(LoneSave, IsDoneByOneOfThoseThatCome) {
  const TemporaryFolder run;
  std::vector<std::future<bool>> ranks;
  for (int rank = 0; rank < 4; ++rank)
    ranks.push_back(std::async(std::launch::async,
        [&run, rank] { return save_alone(run.path(), 2, 7, part(7, rank, 2'000'000)); }));
  int saved = 0;
  for (auto& rank : ranks) saved += rank.get() ? 1 : 0;
  EXPECT_EQ(saved, 1);
  EXPECT_FALSE(save_alone(run.path(), 2, 7, part(7))) << "it is there";
  EXPECT_EQ(newest(run).step(), 7);
}

// Ranks may lose each other after different steps.
TEST(LoneSave, OfALaterStepIsAnotherOne) {
  const TemporaryFolder run;
  fs::create_directories(fs::path(run.path()) / "snapshots" / rescue_name(7));
  EXPECT_FALSE(save_alone(run.path(), 2, 7, part(7))) << "another rank is at it";
  EXPECT_TRUE(save_alone(run.path(), 2, 8, part(8)));
  EXPECT_EQ(newest(run).step(), 8);
  SnapshotFolder(run.path()).remove_leftovers();
  EXPECT_THAT(names_in(fs::path(run.path()) / "snapshots"), ElementsAre("LATEST", "step-00000008"));
}

TEST(LoneSave, LeavesNothingWhereTheDiskIsFull) {
  const TemporaryFolder run;
  ASSERT_TRUE(save_alone(run.path(), 2, 6, part(6)));
  {
    const testing::FileSizeLimit limit(10'000);
    EXPECT_THROW(save_alone(run.path(), 2, 7, part(7, 0, 100'000)), std::system_error);
  }
  EXPECT_EQ(newest(run).step(), 6);
  EXPECT_THAT(names_in(fs::path(run.path()) / "snapshots"), ElementsAre("LATEST", "step-00000006"));
}

/// The slot of this process on a launcher's page, which shows what is told to it.
class OwnSlot {
 public:
  OwnSlot() { attached_slot = &slot_; }
  OwnSlot(const OwnSlot&) = delete;
  OwnSlot& operator=(const OwnSlot&) = delete;
  ~OwnSlot() { attached_slot = nullptr; }

  RescueState rescue() const { return slot_.rescue; }

 private:
  ProgressSlot slot_;
};

SnapshotPosition load(Snapshot& snapshot, SmallTraining& training) {
  return snapshot.load(*training.net, training.optimizer);
}

// As the only one of two: the other one makes no call.
TEST(SnapshotRescue, IsWhatALaterStartGoesOnFrom) {
  const TemporaryFolder run;
  SmallTraining whole, back;
  testing::seed_all(5);
  testing::train_steps(whole.net, whole.optimizer, 0, 3);
  testing::run_ranks(2, [&](const ProcessGroup& world) {
    SmallTraining loaded;
    Snapshot snapshot(run.path(), world);
    (void)load(snapshot, loaded);
    if (world.rank() == 1)
      EXPECT_TRUE(snapshot.save_alone(*whole.net, whole.optimizer, {.epoch = 1, .step = 3}));
  });
  Snapshot snapshot(run.path(), ProcessGroup());
  const auto [epoch, step] = load(snapshot, back);
  EXPECT_EQ(epoch, 1);
  EXPECT_EQ(step, 3);
  testing::expect_same_bits(nn::named_state(*back.net), nn::named_state(*whole.net));
}

TEST(SnapshotRescue, IsToldToTheLauncher) {
  const TemporaryFolder run;
  testing::run_ranks(2, [&](const ProcessGroup& world) {
    SmallTraining training;
    Snapshot snapshot(run.path(), world, {.rescue = world.rank() == 0});
    std::optional<OwnSlot> slot;
    if (world.rank() == 0) slot.emplace();
    (void)load(snapshot, training);
    if (world.rank() != 0) return;
    EXPECT_EQ(slot->rescue(), RescueState::kPossible);
    EXPECT_TRUE(snapshot.save_alone(*training.net, training.optimizer, {.step = 3}));
    EXPECT_EQ(slot->rescue(), RescueState::kDone);
    EXPECT_FALSE(snapshot.save_alone(*training.net, training.optimizer, {.step = 3}));
    EXPECT_EQ(slot->rescue(), RescueState::kNone) << "it was there";
  });
}

TEST(SnapshotRescue, IsOverWhenItFails) {
  const TemporaryFolder run;
  testing::run_ranks(2, [&](const ProcessGroup& world) {
    SmallTraining training;
    Snapshot snapshot(run.path(), world, {.rescue = world.rank() == 0});
    std::optional<OwnSlot> slot;
    if (world.rank() == 0) slot.emplace();
    (void)load(snapshot, training);
    if (world.rank() != 0) return;
    const testing::FileSizeLimit limit(10);
    EXPECT_THROW(
        snapshot.save_alone(*training.net, training.optimizer, {.step = 3}), std::system_error);
    EXPECT_EQ(slot->rescue(), RescueState::kNone) << "the launcher need not wait";
  });
}

TEST(SnapshotRescue, IsNotForSharesOfAnOptimizer) {
  const TemporaryFolder run;
  SmallTraining training;
  const ShardedOptimizer sharded(
      std::make_unique<nn::Adam>(training.net->parameters(), torch::optim::AdamOptions(0.01)),
      ProcessGroup());
  Snapshot snapshot(run.path(), ProcessGroup());
  (void)load(snapshot, training);
  EXPECT_THROW(snapshot.save_alone(*training.net, sharded, {}), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
