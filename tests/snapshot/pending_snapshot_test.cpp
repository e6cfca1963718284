#include "lockstep/snapshot/pending_snapshot.h"

#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <system_error>

#include "tests/snapshot/saved_snapshot.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/formats/weights/safetensors.h"
#include "lockstep/snapshot/manifest.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

class PendingSnapshotTest : public ::testing::Test {
 protected:
  std::vector<std::string> names() const { return OpenDirectory::open(folder_.path()).names(); }

  testing::TemporaryFolder directory_;
  SnapshotFolder folder_{directory_.path() / "run"};
};

TEST_F(PendingSnapshotTest, AppearsWholeWithTheNameOfItsStep) {
  const fs::path path = testing::save_snapshot(folder_.run(), 1200, 7);
  EXPECT_EQ(path, folder_.path() / "step-00001200");
  EXPECT_THAT(names(), ElementsAre("LATEST", "step-00001200"));
  EXPECT_EQ(testing::contents(folder_.path() / "LATEST"), "step-00001200\n");
  EXPECT_EQ(fs::status(path).permissions(), fs::perms(0755));
  const SnapshotManifest manifest = verify_snapshot(path);
  EXPECT_EQ(manifest.step, 1200);
  EXPECT_EQ(manifest.files.size(), 3U);
  EXPECT_EQ(read_safetensors(path / "model.safetensors").find("weight")->bytes[0], 7);
}

TEST_F(PendingSnapshotTest, IsFilledByRanksThatJoin) {
  auto first = PendingSnapshot::begin(folder_, 3);
  auto second = PendingSnapshot::join(first.path());
  EXPECT_EQ(second.step(), 3);
  EXPECT_EQ(fs::status(first.path()).permissions(), fs::perms(0700));
  SnapshotManifest manifest{.step = 3, .libtorch = "2.15.0", .lockstep = "1", .files = {}};
  manifest.files.push_back(second.write("rank-00001.safetensors", "one"));
  manifest.files.push_back(first.write("rank-00000.safetensors", "zero"));
  EXPECT_THROW(second.commit(manifest), InvalidArgument);
  const fs::path path = first.commit(manifest);
  EXPECT_EQ(verify_snapshot(path), manifest);
  EXPECT_THROW(first.write("more", "x"), InvalidArgument);
}

TEST_F(PendingSnapshotTest, LeavesNothingWithoutCommit) {
  {
    auto pending = PendingSnapshot::begin(folder_, 3);
    auto joined = PendingSnapshot::join(pending.path());
    joined.write("a", "x");
    PendingSnapshot moved(std::move(pending));
    moved.write("b", "x");
  }
  EXPECT_THAT(names(), ElementsAre());
}

TEST_F(PendingSnapshotTest, DoesNotCommitWhatIsNotOnTheDisk) {
  testing::save_snapshot(folder_.run(), 5, 1);
  const auto commit = [&](const auto& change) {
    auto pending = PendingSnapshot::begin(folder_, 6);
    SnapshotManifest manifest{.step = 6, .libtorch = "2.15.0", .lockstep = {}, .files = {}};
    manifest.files.push_back(pending.write("a", "text"));
    change(pending.path(), manifest);
    pending.commit(manifest);
  };
  const std::vector<std::function<void(const fs::path&, SnapshotManifest&)>> changes{
      [](const fs::path& path, SnapshotManifest&) { fs::remove(path / "a"); },
      [](const fs::path& path, SnapshotManifest&) { std::ofstream(path / "a") << "txet"; },
      [](const fs::path& path, SnapshotManifest&) { std::ofstream(path / "b") << "more"; },
      [](const fs::path&, SnapshotManifest& manifest) { manifest.files[0].sha256[0] ^= 1; },
      [](const fs::path&, SnapshotManifest& manifest) { ++manifest.files[0].bytes; }};
  for (const auto& change : changes) EXPECT_THROW(commit(change), std::system_error);
  EXPECT_THROW(commit([](const fs::path&, SnapshotManifest& manifest) { manifest.step = 7; }),
      InvalidArgument);
  EXPECT_THAT(names(), ElementsAre("LATEST", "step-00000005"));
}

TEST_F(PendingSnapshotTest, RefusesNamesThatLeaveTheFolder) {
  auto pending = PendingSnapshot::begin(folder_, 3);
  for (const std::string name :
      {"", ".", "..", "../x", "a/b", "/tmp/x", ".hidden", "manifest.json", "a b", "a\nb"}) {
    EXPECT_THROW(pending.write(name, "x"), InvalidArgument) << name;
  }
  pending.write("a", "x");
  EXPECT_THROW(pending.write("a", "x"), std::system_error) << "a name that is taken";
}

TEST_F(PendingSnapshotTest, JoinsNothingElse) {
  testing::save_snapshot(folder_.run(), 5, 1);
  const auto pending = PendingSnapshot::begin(folder_, 6);
  EXPECT_THROW(PendingSnapshot::join(folder_.path() / "step-00000005"), DataError);
  EXPECT_THROW(PendingSnapshot::join(pending.path().filename()), DataError);
  EXPECT_THROW(PendingSnapshot::join(""), DataError);
  const fs::path link = folder_.path() / ".step-00000006.abcdef";
  fs::create_symlink(pending.path().filename(), link);
  EXPECT_THROW(PendingSnapshot::join(link), DataError);
}

}  // namespace
}  // namespace lockstep
