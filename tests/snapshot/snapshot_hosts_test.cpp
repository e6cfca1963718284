#include "lockstep/snapshot/snapshot_hosts.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include "tests/comm/group_factory.h"
#include "tests/snapshot/snapshot_fixtures.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include <torch/types.h>

#include "lockstep/core/error.h"
#include "lockstep/snapshot/manifest.h"
#include "lockstep/snapshot/snapshot_files.h"
#include "lockstep/snapshot/snapshot_reader.h"
#include "lockstep/snapshot/snapshot_saver.h"
#include "lockstep/snapshot/tensor_shards.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::contents;
using ::testing::ElementsAre;
using testing::expect_snapshot;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::names_in;
using testing::part_of;
using testing::TemporaryFolder;

// Ranks 0 and 2 are of one host, 1 and 3 of another, which see folders of their own.
std::string host_of(const ProcessGroup& world) { return world.rank() % 2 == 0 ? "even" : "odd"; }

fs::path run_of(const TemporaryFolder& folder, const ProcessGroup& world) {
  return folder.path() / host_of(world);
}

fs::path snapshots_on(const TemporaryFolder& folder, const std::string& host) {
  return folder.path() / host / "snapshots";
}

void save(const TemporaryFolder& folder, const ProcessGroup& world, int copies, std::int64_t step,
    std::int64_t size = 100, const std::string& run = "") {
  const SnapshotHosts hosts(world, copies, host_of(world));
  SnapshotSaver saver({.run = run_of(folder, world), .hosts = hosts}, world);
  SnapshotPart part = part_of(world, step, size);
  if (!run.empty() && !part.state.empty())
    part.state = concat("{\"step\":", step, ",\"run\":\"", run, "\"}");
  saver.save(step, part);
  saver.finish();
  EXPECT_THAT(saver.take_warnings(), IsEmpty());
  EXPECT_EQ(saver.last_saved(), step);
}

// Of a run that every rank wants.
void spread(const TemporaryFolder& folder, const ProcessGroup& world, int copies) {
  spread_newest(run_of(folder, world), SnapshotHosts(world, copies, host_of(world)),
      [](const auto&, const auto&) { return true; });
}

TEST(SnapshotHosts, KeepSnapshotsInTheOrderOfTheirFirstRanks) {
  testing::run_ranks(4, [](const ProcessGroup& world) {
    EXPECT_FALSE(SnapshotHosts(world, 0, host_of(world)).are_apart());
    const SnapshotHosts one(world, 1, host_of(world)), all(world, 9, host_of(world));
    EXPECT_THAT(one.leaders(), ElementsAre(0, 1));
    EXPECT_THAT(one.keepers(), ElementsAre(0));
    EXPECT_THAT(all.keepers(), ElementsAre(0, 1));
    EXPECT_EQ(one.keeps(), world.rank() == 0);
    EXPECT_EQ(all.leads(), world.rank() < 2);
  });
}

TEST(SnapshotsApart, AreWholeOnEachHostThatKeepsThem) {
  constexpr std::int64_t kMany = 3'000'000;  // several pieces
  for (const int copies : {1, 2}) {
    const TemporaryFolder folder;
    testing::run_ranks(
        4, [&](const ProcessGroup& world) { save(folder, world, copies, 7, kMany); });
    expect_snapshot(folder.path() / "even", 7, 4, kMany);
    if (copies == 1) {
      EXPECT_FALSE(fs::exists(snapshots_on(folder, "odd")));
      continue;
    }
    expect_snapshot(folder.path() / "odd", 7, 4, kMany);
    for (const char* file : {"manifest.json", "model.safetensors.index.json"})
      EXPECT_EQ(contents(snapshots_on(folder, "even") / "step-00000007" / file),
          contents(snapshots_on(folder, "odd") / "step-00000007" / file));
  }
}

// Also on one that has lost them.
TEST(SnapshotsApart, AreWholeOnEachHostWhereRanksShareTensors) {
  const TemporaryFolder folder;
  testing::run_ranks(4, [&](const ProcessGroup& world) {
    const SnapshotHosts hosts(world, 2, host_of(world));
    SnapshotSaver saver({.run = run_of(folder, world), .hosts = hosts}, world);
    const std::int64_t begin = 5 * world.rank();
    const TensorRange range{.whole = {4, 5}, .begin = begin, .end = begin + 5};
    SnapshotPart part;
    part.files[snapshot_file_name("model", world.rank(), 4)] =
        shard_of({.tensors = testing::named("w", torch::full({5}, 1.0 * world.rank()))},
            {{"w", range}}, false);
    if (world.rank() == 0) part.state = "{\"step\":7}";
    saver.save(7, part);
    saver.finish();
    EXPECT_THAT(saver.take_warnings(), IsEmpty());
    if (world.rank() == 1) fs::remove_all(snapshots_on(folder, "odd"));
    spread(folder, world, 2);
  });
  for (const char* host : {"even", "odd"}) {
    const SnapshotReader reader(SnapshotFolder(folder.path() / host).newest());
    testing::expect_same_bits(
        reader.model()["w"], torch::arange(4, torch::kFloat).view({4, 1}).expand({4, 5}));
  }
}

TEST(SnapshotsApart, AppearNowhereIfOneHostCannotTakeThem) {
  const TemporaryFolder folder;
  fs::create_directory(folder.path() / "odd");
  std::ofstream(snapshots_on(folder, "odd")) << "no folder";
  testing::run_ranks(4, [&](const ProcessGroup& world) {
    const SnapshotHosts hosts(world, 2, host_of(world));
    SnapshotSaver saver({.run = run_of(folder, world), .hosts = hosts}, world);
    saver.save(7, part_of(world, 7));
    saver.finish();
    EXPECT_THAT(saver.take_warnings(), ElementsAre(HasSubstr("could not be written: rank 1: ")));
    EXPECT_FALSE(saver.last_saved());
  });
  EXPECT_THAT(names_in(snapshots_on(folder, "even")), IsEmpty());
}

// One rank's disk is slower than ranks wait for each other.
TEST(SnapshotsApart, MayTakeLongerThanACollective) {
  const TemporaryFolder folder;
  testing::run_ranks(4, [&](const ProcessGroup& world) {
    world.set_timeout(std::chrono::seconds(2));
    const SnapshotHosts hosts(world, 2, host_of(world));
    const SnapshotFolder snapshots(run_of(folder, world));
    std::optional<PendingSnapshot> pending;
    if (hosts.keeps()) pending.emplace(PendingSnapshot::begin(snapshots, 7));
    const auto write = [&](ByteSink& sink) {
      if (world.rank() == 2) std::this_thread::sleep_for(std::chrono::seconds(5));
      sink.write(std::string_view("content"));
    };
    const OwnFile own{
        .facts = {.file = {.name = concat("file-", world.rank()), .sha256 = {}}}, .write = write};
    const auto files =
        spread_files(hosts.group(), hosts.keepers(), pending ? &*pending : nullptr, {own});
    ASSERT_TRUE(files.has_value());
    EXPECT_EQ(files->size(), hosts.keeps() ? 4U : 0U);
  });
}

// Its peers would wait for its files without end.
TEST(SnapshotsApart, EndWhenARankIsLost) {
  const TemporaryFolder folder;
  const auto lose_one = [&](const ProcessGroup& world) {
    const SnapshotHosts hosts(world, 2, host_of(world));
    SnapshotSaver saver({.run = run_of(folder, world), .hosts = hosts}, world);
    if (world.rank() == 3) throw std::runtime_error("lost");
    saver.save(7, part_of(world, 7));
    saver.finish();
  };
  EXPECT_ANY_THROW(testing::run_ranks(4, lose_one));
}

TEST(SnapshotsApart, AppearNowhereIfTheRunHasDiverged) {
  const TemporaryFolder folder;
  testing::run_ranks(4, [&](const ProcessGroup& world) {
    const SnapshotHosts hosts(world, 2, host_of(world));
    SnapshotSaver saver({.run = run_of(folder, world), .hosts = hosts}, world);
    SnapshotPart part = part_of(world, 7);
    part.overflows = {torch::full({}, world.rank() == 3, torch::kBool)};
    part.divergence = "diverged";
    saver.save(7, part);
    EXPECT_THROW(saver.finish(), DivergedError);
  });
  EXPECT_THAT(names_in(snapshots_on(folder, "even")), IsEmpty());
  EXPECT_THAT(names_in(snapshots_on(folder, "odd")), IsEmpty());
}

TEST(NewestOfHosts, IsGivenToThoseThatLackIt) {
  const TemporaryFolder folder;
  testing::run_ranks(4, [&](const ProcessGroup& world) {
    save(folder, world, 2, 3);
    save(folder, world, 2, 7);
  });
  fs::remove_all(folder.path() / "even");  // the host of rank 0 was replaced
  testing::run_ranks(4, [&](const ProcessGroup& world) { spread(folder, world, 2); });
  expect_snapshot(folder.path() / "even", 7, 4);
  EXPECT_THAT(names_in(snapshots_on(folder, "even")), ElementsAre("LATEST", "step-00000007"));
}

TEST(NewestOfHosts, IsThatOfTheHighestStep) {
  for (const std::string older : {"even", "odd"}) {
    const TemporaryFolder folder;
    testing::run_ranks(4, [&](const ProcessGroup& world) {
      save(folder, world, 2, 3);
      save(folder, world, 2, 7);
    });
    fs::remove_all(snapshots_on(folder, older) / "step-00000007");
    testing::run_ranks(4, [&](const ProcessGroup& world) { spread(folder, world, 2); });
    expect_snapshot(folder.path() / older, 7, 4);
  }
}

TEST(NewestOfHosts, TakesThePlaceOfADamagedOne) {
  const TemporaryFolder folder;
  testing::run_ranks(4, [&](const ProcessGroup& world) { save(folder, world, 2, 7); });
  std::ofstream(snapshots_on(folder, "odd") / "step-00000007" / "state.json") << "{}";
  testing::run_ranks(4, [&](const ProcessGroup& world) { spread(folder, world, 1); });
  expect_snapshot(folder.path() / "odd", 7, 4);
}

TEST(NewestOfHosts, ThatCannotBeTakenIsAnErrorOfAllRanks) {
  const TemporaryFolder folder;
  testing::run_ranks(2, [&](const ProcessGroup& world) { save(folder, world, 1, 7); });
  fs::create_directory(folder.path() / "odd");
  std::ofstream(snapshots_on(folder, "odd")) << "no folder";
  testing::run_ranks(
      2, [&](const ProcessGroup& world) { EXPECT_THROW(spread(folder, world, 1), DataError); });
}

// A host that joins has the folder of an older run, whose step is higher.
TEST(NewestOfHosts, OfDifferentRunsAreRefusedWithBothIds) {
  for (const std::string step : {"00000003", "00000007"}) {  // or the same
    const TemporaryFolder folder, older;
    testing::run_ranks(2, [&](const ProcessGroup& world) {
      save(folder, world, 2, 3, 100, "good");
      save(older, world, 2, std::stoll(step), 100, "older");
    });
    fs::remove_all(folder.path() / "odd");
    fs::copy(older.path() / "odd", folder.path() / "odd", fs::copy_options::recursive);
    testing::run_ranks(2, [&](const ProcessGroup& world) {
      EXPECT_THAT(testing::message_of<DataError>([&] { spread(folder, world, 2); }),
          AllOf(HasSubstr("run good: on host"), HasSubstr("run older: on host"),
              HasSubstr("even/snapshots/step-00000003"), HasSubstr("odd/snapshots/step-" + step)));
    });
    EXPECT_THAT(names_in(snapshots_on(folder, "even")), ElementsAre("LATEST", "step-00000003"));
    EXPECT_THAT(names_in(snapshots_on(folder, "odd")), ElementsAre("LATEST", "step-" + step));
  }
}

TEST(NewestOfHosts, OfAnotherTrainingIsGivenToNoHost) {
  const TemporaryFolder folder;
  testing::run_ranks(2, [&](const ProcessGroup& world) { save(folder, world, 1, 7); });
  testing::run_ranks(2, [&](const ProcessGroup& world) {
    const SnapshotHosts hosts(world, 2, host_of(world));
    std::string seen;
    spread_newest(run_of(folder, world), hosts, [&](const auto& state, const auto& file) {
      seen = state + file;
      return false;
    });
    EXPECT_THAT(seen, AllOf(HasSubstr("{\"step\":7}"), HasSubstr("step-00000007/state.json")));
  });
  EXPECT_FALSE(fs::exists(snapshots_on(folder, "odd")));
}

TEST(NewestOfHosts, OfAnotherRunIsRefusedOrRemoved) {
  const TemporaryFolder folder;
  testing::run_ranks(2, [&](const ProcessGroup& world) { save(folder, world, 2, 7); });
  testing::run_ranks(2, [&](const ProcessGroup& world) {
    const SnapshotHosts hosts(world, 2, host_of(world));
    EXPECT_THROW(check_no_other_run(run_of(folder, world), hosts, false), InvalidArgument);
    check_no_other_run(run_of(folder, world), hosts, true);
  });
  EXPECT_FALSE(fs::exists(snapshots_on(folder, "odd")));
  EXPECT_TRUE(fs::exists(snapshots_on(folder, "even"))) << "rank 0 looks after its own";
}

}  // namespace
}  // namespace lockstep
