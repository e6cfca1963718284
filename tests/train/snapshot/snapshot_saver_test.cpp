#include "lockstep/snapshot/snapshot_saver.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <system_error>

#include "tests/comm/group_factory.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/file_size_limit.h"
#include "tests/train/snapshot/snapshot_parts.h"
#include "tests/train/snapshot/training_steps.h"
#include <torch/types.h>

#include "lockstep/comm/process_group.h"
#include "lockstep/core/error.h"
#include "lockstep/snapshot/group_values.h"
#include "lockstep/snapshot/snapshot_reader.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using testing::expect_same_bits;
using testing::FileSizeLimit;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::named;
using testing::names_in;
using testing::part_of;
using testing::TemporaryFolder;

void expect_snapshot(const fs::path& run, std::int64_t step, int ranks, std::int64_t size = 100) {
  const SnapshotChoice choice = SnapshotFolder(run).newest();
  ASSERT_FALSE(choice.path.empty());
  EXPECT_THAT(choice.refused, IsEmpty());
  const SnapshotReader reader(choice);
  EXPECT_EQ(reader.step(), step);
  EXPECT_EQ(reader.state(), concat("{\"step\":", step, "}"));
  EXPECT_EQ(reader.ranks(), ranks);
  const auto model = reader.model();
  ASSERT_EQ(model.size(), static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    const auto value = torch::full({size}, static_cast<double>(10 * step + rank));
    expect_same_bits(model[concat("weight", rank)], value);
    expect_same_bits(reader.rank(rank)["own"], value);
  }
  EXPECT_TRUE(reader.rank(ranks).is_empty());
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
    EXPECT_THAT(
        names_in(fs::path(run.path()) / "snapshots"), ElementsAre("LATEST", "step-00000007"));
  }
}

TEST(SnapshotSaver, BecomesDurableWithoutAnotherCall) {
  const TemporaryFolder run;
  testing::run_ranks(2, [&](const ProcessGroup& world) {
    SnapshotSaver saver({.run = run.path()}, world);
    saver.save(3, part_of(world, 3));
  });
  expect_snapshot(run.path(), 3, 2);
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
  const fs::path snapshots = fs::path(run.path()) / "snapshots";
  EXPECT_THAT(names_in(snapshots),
      ElementsAre("LATEST", "best", "step-00000002", "step-00000004", "step-00000005"));
  EXPECT_EQ(SnapshotFolder(run.path()).best(), snapshots / "step-00000002");
}

TEST(SnapshotSaver, WritesPythonsIndexOfParts) {
  const TemporaryFolder run;
  testing::run_ranks(2, [&](const ProcessGroup& world) {
    SnapshotSaver saver({.run = run.path()}, world);
    saver.save(1, part_of(world, 1));
  });
  std::ifstream index(
      fs::path(run.path()) / "snapshots/step-00000001/model.safetensors.index.json");
  const std::string text{std::istreambuf_iterator<char>(index), {}};
  EXPECT_THAT(text, HasSubstr(R"("weight1": "model-00002-of-00002.safetensors")"));
  EXPECT_THAT(text, HasSubstr(R"("total_size": 800)"));
}

// On one rank only, after the first snapshot.
void fail_on(int failing, const std::function<void(SnapshotPart&)>& spoil, bool required) {
  const TemporaryFolder run;
  testing::run_ranks(2, [&](const ProcessGroup& world) {
    SnapshotSaver saver({.run = run.path(), .keep = 1, .required = required}, world);
    saver.save(1, part_of(world, 1));
    saver.finish();
    SnapshotPart part = part_of(world, 2);
    if (world.rank() == failing) spoil(part);
    if (required) {
      try {
        saver.save(2, part);
        saver.finish();
        ADD_FAILURE() << "nothing was thrown";
      } catch (const std::system_error& error) {
        EXPECT_THAT(error.what(), HasSubstr("step 2"));
      }
    } else {
      saver.save(2, part);
      saver.finish();
      const auto warnings = saver.take_warnings();
      ASSERT_EQ(warnings.size(), 1);
      EXPECT_THAT(warnings[0], HasSubstr(concat("step 2 could not be written: rank ", failing)));
    }
    EXPECT_FALSE(saver.in_flight());
    EXPECT_EQ(saver.last_saved(), 1);
    world.barrier().wait();
    if (world.rank() == 0) {
      expect_snapshot(run.path(), 1, 2);
      EXPECT_THAT(
          names_in(fs::path(run.path()) / "snapshots"), ElementsAre("LATEST", "step-00000001"));
    }
    world.barrier().wait();
    saver.save(3, part_of(world, 3));
    saver.finish();
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
    saver.save(1, part_of(world, 1));
    saver.finish();
    std::optional<FileSizeLimit> limit;
    if (world.rank() == 0) limit.emplace(100'000);
    world.barrier().wait();
    saver.save(2, part_of(world, 2, world.rank() == 1 ? 100'000 : 10));
    saver.finish();
    const auto warnings = saver.take_warnings();
    world.barrier().wait();
    limit.reset();
    ASSERT_EQ(warnings.size(), 1);
    EXPECT_THAT(warnings[0], HasSubstr("rank 1: "));
    EXPECT_THAT(warnings[0], HasSubstr("File too large"));
  });
  expect_snapshot(run.path(), 1, 2);
}

TEST(SnapshotSaver, AFolderThatCannotBeMadeIsAWarningOnAllRanks) {
  const TemporaryFolder folder;
  const fs::path run = fs::path(folder.path()) / "run";
  fs::create_directory(run);
  std::ofstream(run / "snapshots") << "in the way";
  testing::run_ranks(2, [&](const ProcessGroup& world) {
    SnapshotSaver saver({.run = run}, world);
    saver.save(1, part_of(world, 1));
    saver.finish();
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
  EXPECT_THAT(names_in(fs::path(run.path()) / "snapshots"), IsEmpty());
}

// Rank 0 names a folder and is gone before it makes it.
TEST(SnapshotSaver, IsAsPatientAtTheEndAsBefore) {
  const TemporaryFolder run;
  const auto aside = fs::path(run.path()) / "snapshots" / ".step-00000001.abc123";
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

}  // namespace
}  // namespace lockstep
