#include <csignal>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/formats/snapshot/run_under_fault.h"
#include "tests/formats/snapshot/system_calls.h"

namespace lockstep {
namespace {

/// Saves in a child process that is killed at its call number `at`, counted from 0, or torn at its
/// write of that number. Returns false if it made fewer.
bool killed_at(const testing::RunUnderFault& run, int at, testing::Fate how) {
  const pid_t child = ::fork();
  if (child == 0) {
    int calls = 0;
    const testing::WatchedCalls watched(run.path(), [&](const testing::SystemCall& call) {
      const bool counts = how != testing::kTorn || call.name == "write";
      if (counts && calls++ == at) return how;
      // Other processes see what the kernel has in memory: no need to wait for the disk.
      return call.name == "fsync" ? testing::kPretended : testing::kDone;
    });
    try {
      run.save();
    } catch (const std::exception&) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  if (WIFSIGNALED(status)) {
    EXPECT_EQ(WTERMSIG(status), SIGKILL);
    return true;
  }
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the save failed, though nothing was done to it";
  return false;
}

class KilledSave : public ::testing::TestWithParam<testing::Scene> {};

TEST_P(KilledSave, LeavesTheOldOrTheNewSnapshotWhereverItIsKilled) {
  for (const testing::Fate how : {testing::kKilled, testing::kTorn}) {
    int old = 0, fresh = 0;
    for (int at = 0;; ++at) {
      SCOPED_TRACE("killed at call " + std::to_string(at));
      const testing::RunUnderFault run(GetParam());
      if (!killed_at(run, at, how)) break;
      ++(run.newest_seed() == testing::kOldSeed ? old : fresh);
      run.expect_that_life_goes_on();
      if (HasFailure()) return;
    }
    EXPECT_GT(old, how == testing::kTorn ? 5 : 40);
    EXPECT_GT(fresh, how == testing::kTorn ? 0 : 8);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Scenes, KilledSave, ::testing::ValuesIn(testing::kScenes), testing::name_of_scene);

namespace fs = std::filesystem;

/// Which names survive a power cut; the bytes of a file survive only if it was synced.
enum class Names {
  kSynced,  ///< those that a folder had when it was last synced: the least that the kernel promises
  kAll,     ///< all: names may be on the disk long before the bytes
};

/// Knows what of a folder is on the disk, from the calls that are made.
class SyncedDisk {
 public:
  /// All that is there now is on the disk.
  explicit SyncedDisk(const fs::path& root) : root_(fs::canonical(root)) {
    sync(root_);
    for (const auto& entry : fs::recursive_directory_iterator(root_)) sync(entry.path());
  }

  void see(const testing::SystemCall& call, long result) {
    if (result < 0) return;
    if (call.name == "fsync") sync(call.path);
    if (call.name == "create" || call.name == "mkdir") forget(node_of(call.path));
  }

  /// Writes what is left after a power cut.
  void write_to(const fs::path& target, Names names) const {
    write_folder(node_of(root_), root_, target, names);
  }

 private:
  struct Node {
    ino_t number;
    bool is_folder;
  };
  using Listing = std::map<std::string, Node>;

  static Node node_of(const fs::path& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) return {0, false};
    return {status.st_ino, S_ISDIR(status.st_mode)};
  }

  static Listing listing_of(const fs::path& folder) {
    Listing listing;
    for (const auto& entry : fs::directory_iterator(folder)) {
      listing[entry.path().filename().string()] = node_of(entry.path());
    }
    return listing;
  }

  void sync(const fs::path& path) {
    const Node node = node_of(path);
    if (node.is_folder) {
      listings_[node.number] = listing_of(path);
    } else {
      std::ifstream file(path, std::ios::binary);
      bytes_[node.number].assign(std::istreambuf_iterator<char>(file), {});
    }
  }

  /// The number of one that is gone may have come again.
  void forget(const Node& node) {
    bytes_.erase(node.number);
    listings_.erase(node.number);
  }

  void write_folder(
      const Node& node, const fs::path& live, const fs::path& target, Names names) const {
    fs::create_directory(target);
    const auto synced = listings_.find(node.number);
    Listing listing;
    if (names == Names::kAll) {
      listing = listing_of(live);
    } else if (synced != listings_.end()) {
      listing = synced->second;
    }
    for (const auto& [name, entry] : listing) {
      if (entry.is_folder) {
        write_folder(entry, live / name, target / name, names);
      } else {
        const auto bytes = bytes_.find(entry.number);
        std::ofstream(target / name) << (bytes == bytes_.end() ? std::string() : bytes->second);
      }
    }
  }

  fs::path root_;
  std::map<ino_t, std::string> bytes_;
  std::map<ino_t, Listing> listings_;
};

/// Cuts the power before the call number `at` of a save; the run is then what the disk had. Returns
/// false if the save made fewer calls.
bool cut_at(const testing::RunUnderFault& run, int at, Names names) {
  const fs::path left = run.path() / "left";
  const pid_t child = ::fork();
  if (child == 0) {
    int calls = 0;
    SyncedDisk disk(run.run());
    const testing::WatchedCalls watched(
        run.path(),
        [&](const testing::SystemCall& call) {
          if (calls++ == at) {
            disk.write_to(left, names);
            ::_exit(0);
          }
          return call.name == "fsync" ? testing::kPretended : testing::kDone;
        },
        [&](const testing::SystemCall& call, long result) { disk.see(call, result); });
    run.save();
    ::_exit(1);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "the save failed, though nothing was done to it";
  if (WEXITSTATUS(status) != 0) return false;
  fs::remove_all(run.run());
  fs::rename(left, run.run());
  return true;
}

class PowerCut : public ::testing::TestWithParam<testing::Scene> {};

TEST_P(PowerCut, LeavesTheOldOrTheNewSnapshotWheneverItComes) {
  for (const Names names : {Names::kSynced, Names::kAll}) {
    int old = 0, fresh = 0;
    for (int at = 0;; ++at) {
      SCOPED_TRACE("cut at call " + std::to_string(at));
      const testing::RunUnderFault run(GetParam());
      if (!cut_at(run, at, names)) break;
      ++(run.newest_seed() == testing::kOldSeed ? old : fresh);
      run.expect_that_life_goes_on();
      if (HasFailure()) return;
    }
    EXPECT_GT(old, 40);
    EXPECT_GT(fresh, 8);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Scenes, PowerCut, ::testing::ValuesIn(testing::kScenes), testing::name_of_scene);

}  // namespace

}  // namespace lockstep
