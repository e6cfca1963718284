#include "lockstep/snapshot/snapshot_saver.h"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include "tests/comm/group_factory.h"
#include "tests/snapshot/snapshot_fixtures.h"
#include "tests/support/failing_call.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/file_size_limit.h"
#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/liveness/own_slot.h"
#include "lockstep/nn/fused_optimizers.h"
#include "lockstep/parallel/optim/sharded_optimizer.h"
#include "lockstep/snapshot/group_values.h"
#include "lockstep/snapshot/snapshot.h"
#include "lockstep/snapshot/snapshot_names.h"
#include "lockstep/snapshot/snapshot_reader.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::expect_same_bits;
using testing::expect_snapshot;
using testing::FileSizeLimit;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::named;
using testing::names_in;
using testing::NoThreads;
using testing::part_of;
using testing::SmallTraining;
using testing::TemporaryFolder;

void save_now(SnapshotSaver& saver, std::int64_t step, const SnapshotPart& part) {
  saver.save(step, part);
  saver.finish();
}

TEST(SnapshotSaver, SavesWhatEachRankHolds) {
  for (const int ranks : {1, 2, 3}) {
    const TemporaryFolder run;
    testing::run_ranks(ranks, [&](const ProcessGroup& world) {
      SnapshotSaver saver({.run = run.path()}, world);
      SnapshotPart part = part_of(world, 7);
      saver.save(7, part);
      for (auto& [name, content] : part.files) content.tensors[0].value().zero_();
      EXPECT_TRUE(saver.in_flight());
      saver.finish();
      EXPECT_FALSE(saver.in_flight());
      EXPECT_EQ(saver.last_saved(), 7);
      ASSERT_TRUE(saver.cost());
      EXPECT_GT(saver.cost()->stall_seconds, 0);
      EXPECT_GT(saver.cost()->background_seconds, 0);
      EXPECT_THAT(saver.take_warnings(), IsEmpty());
    });
    expect_snapshot(run.path(), 7, ranks);
    EXPECT_THAT(names_in(run.path() / "snapshots"), ElementsAre("LATEST", "step-00000007"));
  }
}

TEST(SnapshotSaver, SavesOftenAndKeepsTheNewestAndTheBest) {
  const TemporaryFolder run;
  testing::run_ranks(2, [&](const ProcessGroup& world) {
    SnapshotSaver saver({.run = run.path(), .keep = 2}, world);
    for (const std::int64_t step : {1, 2, 3, 4, 5}) {
      // Larger and smaller ones in turn: the buffer serves all.
      SnapshotPart part = part_of(world, step, step % 2 == 0 ? 200'000 : 10);
      part.best = step == 2;
      saver.save(step, part);
    }
    saver.finish();
  });
  expect_snapshot(run.path(), 5, 2, 10);
  const fs::path snapshots = run.path() / "snapshots";
  EXPECT_THAT(names_in(snapshots),
      ElementsAre("LATEST", "best", "step-00000002", "step-00000004", "step-00000005"));
  EXPECT_EQ(SnapshotFolder(run.path()).best(), snapshots / "step-00000002");
}

// Without another call, as the threads finish what is in flight.
TEST(SnapshotSaver, WritesPythonsIndexOfParts) {
  const TemporaryFolder run;
  testing::run_ranks(2, [&](const ProcessGroup& world) {
    SnapshotSaver saver({.run = run.path()}, world);
    saver.save(1, part_of(world, 1));
  });
  std::ifstream index(run.path() / "snapshots/step-00000001/model.safetensors.index.json");
  const std::string text{std::istreambuf_iterator<char>(index), {}};
  EXPECT_THAT(text, HasSubstr(R"("weight1": "model-00002-of-00002.safetensors")"));
  EXPECT_THAT(text, HasSubstr(R"("total_size": 800)"));
  expect_snapshot(run.path(), 1, 2);
}

// On one rank only, after the first snapshot.
void fail_on(int failing, const std::function<void(SnapshotPart&)>& spoil, bool required) {
  const TemporaryFolder run;
  testing::run_ranks(2, [&](const ProcessGroup& world) {
    SnapshotSaver saver({.run = run.path(), .keep = 1, .required = required}, world);
    save_now(saver, 1, part_of(world, 1));
    SnapshotPart part = part_of(world, 2);
    if (world.rank() == failing) spoil(part);
    if (required) {
      EXPECT_THAT(testing::message_of<std::system_error>([&] { save_now(saver, 2, part); }),
          HasSubstr("step 2"));
    } else {
      save_now(saver, 2, part);
      EXPECT_THAT(saver.take_warnings(),
          ElementsAre(HasSubstr(concat("step 2 could not be written: rank ", failing))));
    }
    EXPECT_FALSE(saver.in_flight());
    EXPECT_EQ(saver.last_saved(), 1);
    world.barrier().wait();
    if (world.rank() == 0) {
      expect_snapshot(run.path(), 1, 2);
      EXPECT_THAT(names_in(run.path() / "snapshots"), ElementsAre("LATEST", "step-00000001"));
    }
    world.barrier().wait();
    save_now(saver, 3, part_of(world, 3));
    EXPECT_EQ(saver.last_saved(), 3);
  });
  expect_snapshot(run.path(), 3, 2);
}

TEST(SnapshotSaver, AllGiveUpWhatOneCannotWrite) {
  const auto bad_name = [](SnapshotPart& part) { part.files["a/b"] = {}; };
  const auto bad_type = [](SnapshotPart& part) {
    part.files["more.safetensors"] = {
        .tensors = named("z", torch::zeros({1}, torch::kComplexDouble))};
  };
  for (const int failing : {0, 1}) {
    for (const bool required : {false, true}) {
      fail_on(failing, bad_name, required);
      fail_on(failing, bad_type, required);
    }
  }
}

TEST(SnapshotSaver, AFullDiskIsNamedAndTheOldOneStays) {
  const TemporaryFolder run;
  testing::run_ranks(2, [&](const ProcessGroup& world) {
    SnapshotSaver saver({.run = run.path()}, world);
    save_now(saver, 1, part_of(world, 1));
    std::optional<FileSizeLimit> limit;
    if (world.rank() == 0) limit.emplace(100'000);
    world.barrier().wait();
    save_now(saver, 2, part_of(world, 2, world.rank() == 1 ? 100'000 : 10));
    const auto warnings = saver.take_warnings();
    world.barrier().wait();
    limit.reset();
    EXPECT_THAT(warnings, ElementsAre(AllOf(HasSubstr("rank 1: "), HasSubstr("File too large"))));
  });
  expect_snapshot(run.path(), 1, 2);
}

TEST(SnapshotSaver, AFolderThatCannotBeMadeIsAWarningOnAllRanks) {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run";
  fs::create_directory(run);
  std::ofstream(run / "snapshots") << "in the way";
  testing::run_ranks(2, [&](const ProcessGroup& world) {
    SnapshotSaver saver({.run = run}, world);
    save_now(saver, 1, part_of(world, 1));
    EXPECT_FALSE(saver.in_flight());
    EXPECT_THAT(saver.take_warnings(), ElementsAre(HasSubstr("rank 0: ")));
    SnapshotSaver strict({.run = run, .required = true}, world);
    strict.save(1, part_of(world, 1));
    EXPECT_THROW(strict.finish(), std::system_error);
  });
}

TEST(SnapshotSaver, AnExceptionDoesNotWaitForOtherRanks) {
  const TemporaryFolder run;
  std::promise<void> ended;
  const auto train = [&](const ProcessGroup& world) {
    SnapshotPart part = part_of(world, 1);
    if (world.rank() == 1) part.files["a/b"] = {};
    const std::shared_ptr<void> at_end(nullptr, [&](void*) {
      if (world.rank() == 0) ended.set_value();
    });
    const std::chrono::seconds patience(world.rank() == 0 ? 90 : 1);
    SnapshotSaver saver({.run = run.path(), .patience = patience}, world);
    saver.save(1, part);
    if (world.rank() == 0) throw DataError("the training failed");
    // A third of the time for which rank 0 would wait otherwise.
    EXPECT_EQ(ended.get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
  };
  EXPECT_THROW(testing::run_ranks(2, train), DataError);
  EXPECT_TRUE(SnapshotFolder(run.path()).newest().path.empty());
  EXPECT_THAT(names_in(run.path() / "snapshots"), IsEmpty());
}

// Rank 0 names a folder and is gone before it makes it.
TEST(SnapshotSaver, IsAsPatientAtTheEndAsBefore) {
  const TemporaryFolder run;
  const auto aside = run.path() / "snapshots" / ".step-00000001.abc123";
  testing::run_ranks(2, [&](const ProcessGroup& world) {
    if (world.rank() == 0) {
      (void)broadcast_text(aside.string(), 0, world);
      return;
    }
    ::testing::internal::CaptureStderr();
    {
      SnapshotSaver saver({.run = run.path(), .patience = std::chrono::seconds(1)}, world);
      saver.save(1, part_of(world, 1));
    }
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
        HasSubstr(aside.string() + ": rank 0 has not made it within 1 s"));
  });
}

TEST(SnapshotSaver, AnIdleOneCostsNothing) {
  SnapshotSaver saver({.run = "nowhere"}, ProcessGroup());
  EXPECT_EQ(saver.report(), (SnapshotReport{0, 0, 0, 0}));
  saver.advance({1, 1, 0, 0});
  saver.poll();
  saver.finish();
  EXPECT_FALSE(fs::exists("nowhere"));
  EXPECT_THROW(SnapshotSaver({.run = "nowhere", .keep = 0}, ProcessGroup()), InvalidArgument);
}

// Also in a program that leaves the signal as it is.
TEST(SnapshotSaver, SurvivesAFileThatBecomesTooLarge) {
  const TemporaryFolder run;
  const FileSizeLimit limit(100);
  const auto ignored = std::signal(SIGXFSZ, SIG_DFL);
  SnapshotSaver saver({.run = run.path()}, ProcessGroup());
  save_now(saver, 1, part_of(ProcessGroup(), 1));
  std::signal(SIGXFSZ, ignored);
  EXPECT_THAT(saver.take_warnings(), ElementsAre(HasSubstr("File too large")));
}

TEST(SnapshotSaver, ASnapshotThatCannotBeginIsAWarningOnAllRanks) {
  const testing::TemporaryFolder run;
  run_ranks(2, [&](const ProcessGroup& world) {
    SnapshotSaver saver({.run = run.path()}, world);
    world.barrier().wait();
    std::optional<NoThreads> none;
    if (world.rank() == 0) none.emplace();
    world.barrier().wait();
    save_now(saver, 1, part_of(world, 1));
    world.barrier().wait();
    none.reset();
    EXPECT_THAT(
        saver.take_warnings(), ElementsAre(HasSubstr("step 1 could not be written: rank 0: ")));
    world.barrier().wait();
    save_now(saver, 2, part_of(world, 2));
    EXPECT_EQ(saver.last_saved(), 2);
  });
}

// What a rank of the number saves of a step.
SnapshotPart part(std::int64_t step, int rank = 0, std::int64_t size = 100) {
  SnapshotPart part;
  part.files["model.safetensors"] = {
      .tensors = named("weight", torch::full({size}, static_cast<double>(step)))};
  part.files["rank-00000.safetensors"] = {.tensors = named("own", torch::full({1}, rank))};
  part.state = concat("{\"step\":", step, "}");
  return part;
}

SnapshotReader newest(const TemporaryFolder& run) {
  return SnapshotReader(SnapshotFolder(run.path()).newest());
}

TEST(LoneSave, KeepsAsManyAsOthersDoAndTheBest) {
  const TemporaryFolder run;
  for (const std::int64_t step : {1, 2, 3, 4}) {
    SnapshotPart whole = part(step);
    whole.best = step == 1;
    EXPECT_TRUE(save_alone(run.path(), 2, step, whole));
  }
  EXPECT_THAT(names_in(run.path() / "snapshots"),
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
  fs::create_directories(run.path() / "snapshots" / rescue_name(7));
  EXPECT_FALSE(save_alone(run.path(), 2, 7, part(7))) << "another rank is at it";
  EXPECT_TRUE(save_alone(run.path(), 2, 8, part(8)));
  EXPECT_EQ(newest(run).step(), 8);
  SnapshotFolder(run.path()).remove_leftovers();
  EXPECT_THAT(names_in(run.path() / "snapshots"), ElementsAre("LATEST", "step-00000008"));
}

TEST(LoneSave, LeavesNothingWhereTheDiskIsFull) {
  const TemporaryFolder run;
  ASSERT_TRUE(save_alone(run.path(), 2, 6, part(6)));
  {
    const FileSizeLimit limit(10'000);
    EXPECT_THROW(save_alone(run.path(), 2, 7, part(7, 0, 100'000)), std::system_error);
  }
  EXPECT_EQ(newest(run).step(), 6);
  EXPECT_THAT(names_in(run.path() / "snapshots"), ElementsAre("LATEST", "step-00000006"));
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
  expect_same_bits(nn::named_state(*back.net), nn::named_state(*whole.net));
}

// Lets rank 0 of two, whose launcher knows that it may be saved alone, do `rescue` with its way to
// save, and what the launcher is told.
void rescue_on_rank_0(
    const std::function<void(const std::function<bool()>& save_alone, const OwnSlot& slot)>&
        rescue) {
  const TemporaryFolder run;
  testing::run_ranks(2, [&](const ProcessGroup& world) {
    SmallTraining training;
    Snapshot snapshot(run.path(), world, {.rescue = world.rank() == 0});
    std::optional<OwnSlot> slot;
    if (world.rank() == 0) slot.emplace();
    (void)load(snapshot, training);
    const auto save_alone = [&] {
      return snapshot.save_alone(*training.net, training.optimizer, {.step = 3});
    };
    if (world.rank() == 0) rescue(save_alone, *slot);
  });
}

TEST(SnapshotRescue, IsToldToTheLauncher) {
  rescue_on_rank_0([](const auto& save_alone, const OwnSlot& slot) {
    EXPECT_EQ(slot.rescue(), RescueState::kPossible);
    EXPECT_TRUE(save_alone());
    EXPECT_EQ(slot.rescue(), RescueState::kDone);
    EXPECT_FALSE(save_alone());
    EXPECT_EQ(slot.rescue(), RescueState::kNone) << "it was there";
  });
}

TEST(SnapshotRescue, IsOverWhenItFails) {
  rescue_on_rank_0([](const auto& save_alone, const OwnSlot& slot) {
    const FileSizeLimit limit(10);
    EXPECT_THROW(save_alone(), std::system_error);
    EXPECT_EQ(slot.rescue(), RescueState::kNone) << "the launcher need not wait";
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
