// What file systems of a network do otherwise with folders.

#include <algorithm>
#include <cerrno>
#include <gtest/gtest.h>
#include <system_error>

#include "tests/snapshot/saved_snapshot.h"
#include "tests/snapshot/system_calls.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/formats/open_directory.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using testing::SystemCall;
using testing::WatchedCalls;

TEST(FolderFaults, WhereFoldersCannotBeSyncedNothingIsLost) {
  const testing::TemporaryFolder folder;
  int failing = EINVAL;
  const WatchedCalls watched(folder.path(), [&](const SystemCall& call) {
    return call.name == "fsync" && fs::is_directory(call.path) ? failing : int{testing::kDone};
  });
  EXPECT_NO_THROW(OpenDirectory::open(folder.path()).sync());
  EXPECT_TRUE(make_folders(folder.path() / "a"));
  const fs::path snapshot = testing::save_snapshot(folder.path() / "run", 3, 1);
  EXPECT_EQ(testing::seed_of(snapshot), 1);
  failing = EIO;
  EXPECT_THROW(OpenDirectory::open(folder.path()).sync(), std::system_error);
  EXPECT_THROW(make_folders(folder.path() / "b"), std::system_error);
}

/// Returns the folders below one that an action has synced.
template <typename Action>
std::vector<std::string> synced(const fs::path& folder, const Action& action) {
  std::vector<std::string> paths;
  const WatchedCalls watched(folder, [&](const SystemCall& call) {
    if (call.name == "fsync") paths.push_back(call.path);
    return int{testing::kDone};
  });
  action();
  return paths;
}

bool has(const std::vector<std::string>& paths, const fs::path& path) {
  return std::ranges::find(paths, path.string()) != paths.end();
}

TEST(FolderFaults, TheNameOfANewFolderIsSynced) {
  const testing::TemporaryFolder folder;
  const fs::path run = folder.path() / "runs" / "first";
  const auto paths = synced(folder.path(), [&] { testing::save_snapshot(run, 3, 1); });
  EXPECT_TRUE(has(paths, folder.path())) << "it holds the name `runs`";
  EXPECT_TRUE(has(paths, run.parent_path())) << "it holds the name of the run's folder";
  EXPECT_TRUE(has(paths, run)) << "it holds the name `snapshots`";
  EXPECT_FALSE(make_folders(run.string() + "/"));
  EXPECT_TRUE(make_folders(run.string() + "/a/b/"));
  EXPECT_TRUE(fs::is_directory(run / "a" / "b"));
}

// What a client of NFS remembers of a folder it asks again when the folder is opened.
TEST(FolderFaults, AMissingNameIsLookedForAnewEachTime) {
  const testing::TemporaryFolder folder;
  int opened = 0;
  const WatchedCalls watched(folder.path(), [&](const SystemCall& call) {
    opened += call.name == "openat" && call.path == folder.path() / "snapshots" ? 1 : 0;
    return int{testing::kDone};
  });
  const fs::path aside = folder.path() / "snapshots" / ".step-00000001.abc123";
  EXPECT_FALSE(is_there_now(aside)) << "nor is the folder above";
  make_folders(aside.parent_path());
  opened = 0;
  for (int look = 0; look < 3; ++look) EXPECT_FALSE(is_there_now(aside));
  EXPECT_EQ(opened, 3);
  make_folders(aside);
  EXPECT_TRUE(is_there_now(aside));
}

}  // namespace
}  // namespace lockstep
