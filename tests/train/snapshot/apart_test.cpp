#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <string>

#include "tests/comm/group_factory.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/snapshot/snapshot_parts.h"
#include "tests/train/snapshot/training_steps.h"
#include <torch/types.h>

#include "lockstep/core/error.h"
#include "lockstep/formats/snapshot/snapshot_check.h"
#include "lockstep/train/snapshot/apart/newest_of_hosts.h"
#include "lockstep/train/snapshot/snapshot_reader.h"
#include "lockstep/train/snapshot/snapshot_saver.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using testing::expect_same_bits;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::names_in;
using testing::part_of;
using testing::TemporaryFolder;

// Ranks 0 and 2 are of one host, 1 and 3 of another, which see folders of their own.
std::string host_of(const ProcessGroup& world) { return world.rank() % 2 == 0 ? "even" : "odd"; }

fs::path run_of(const TemporaryFolder& folder, const ProcessGroup& world) {
  return fs::path(folder.path()) / host_of(world);
}

fs::path snapshots_on(const TemporaryFolder& folder, const std::string& host) {
  return fs::path(folder.path()) / host / "snapshots";
}

void save(const TemporaryFolder& folder, const ProcessGroup& world, int copies, std::int64_t step,
    std::int64_t size = 100) {
  const SnapshotHosts hosts(world, copies, host_of(world));
  SnapshotSaver saver({.run = run_of(folder, world), .hosts = hosts}, world);
  saver.save(step, part_of(world, step, size));
  saver.finish();
  EXPECT_THAT(saver.take_warnings(), IsEmpty());
  EXPECT_EQ(saver.last_saved(), step);
}

void expect_whole(const fs::path& run, std::int64_t step, int ranks, std::int64_t size = 100) {
  const SnapshotChoice choice = SnapshotFolder(run).newest();
  ASSERT_FALSE(choice.path.empty()) << run;
  const SnapshotReader reader(choice);
  EXPECT_EQ(reader.step(), step);
  EXPECT_EQ(reader.state(), concat("{\"step\":", step, "}"));
  EXPECT_EQ(reader.ranks(), ranks);
  const auto model = reader.model();
  for (int rank = 0; rank < ranks; ++rank) {
    const auto value = torch::full({size}, static_cast<double>(10 * step + rank));
    expect_same_bits(model[concat("weight", rank)], value);
    expect_same_bits(reader.rank(rank)["own"], value);
  }
}

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
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
    expect_whole(fs::path(folder.path()) / "even", 7, 4, kMany);
    if (copies == 1) {
      EXPECT_FALSE(fs::exists(snapshots_on(folder, "odd")));
      continue;
    }
    expect_whole(fs::path(folder.path()) / "odd", 7, 4, kMany);
    for (const char* file : {"manifest.json", "model.safetensors.index.json"})
      EXPECT_EQ(contents(snapshots_on(folder, "even") / "step-00000007" / file),
          contents(snapshots_on(folder, "odd") / "step-00000007" / file));
  }
}

TEST(SnapshotsApart, AppearNowhereIfOneHostCannotTakeThem) {
  const TemporaryFolder folder;
  fs::create_directory(fs::path(folder.path()) / "odd");
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
  fs::remove_all(fs::path(folder.path()) / "even");  // the host of rank 0 was replaced
  testing::run_ranks(4, [&](const ProcessGroup& world) {
    spread_newest(run_of(folder, world), SnapshotHosts(world, 2, host_of(world)));
  });
  expect_whole(fs::path(folder.path()) / "even", 7, 4);
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
    testing::run_ranks(4, [&](const ProcessGroup& world) {
      spread_newest(run_of(folder, world), SnapshotHosts(world, 2, host_of(world)));
    });
    expect_whole(fs::path(folder.path()) / older, 7, 4);
  }
}

TEST(NewestOfHosts, TakesThePlaceOfADamagedOne) {
  const TemporaryFolder folder;
  testing::run_ranks(4, [&](const ProcessGroup& world) { save(folder, world, 2, 7); });
  std::ofstream(snapshots_on(folder, "odd") / "step-00000007" / "state.json") << "{}";
  testing::run_ranks(4, [&](const ProcessGroup& world) {
    spread_newest(run_of(folder, world), SnapshotHosts(world, 1, host_of(world)));
  });
  expect_whole(fs::path(folder.path()) / "odd", 7, 4);
}

TEST(NewestOfHosts, ThatCannotBeTakenIsAnErrorOfAllRanks) {
  const TemporaryFolder folder;
  testing::run_ranks(2, [&](const ProcessGroup& world) { save(folder, world, 1, 7); });
  fs::create_directory(fs::path(folder.path()) / "odd");
  std::ofstream(snapshots_on(folder, "odd")) << "no folder";
  testing::run_ranks(2, [&](const ProcessGroup& world) {
    const SnapshotHosts hosts(world, 1, host_of(world));
    EXPECT_THROW(spread_newest(run_of(folder, world), hosts), DataError);
  });
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
