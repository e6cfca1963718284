#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

#include "tests/snapshot/saved_snapshot.h"
#include "tests/snapshot/system_calls.h"
#include "tests/support/temporary_folder.h"

#include "lockstep/core/error.h"
#include "lockstep/snapshot/manifest.h"
#include "lockstep/snapshot/pending_snapshot.h"
#include "lockstep/snapshot/snapshot_names.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::kDone;
using testing::kPretended;
using testing::save_snapshot;
using testing::seed_of;
using testing::SystemCall;
using testing::WatchedCalls;

/// The situation in which a save starts.
enum class Scene {
  kFirst,      ///< no snapshot: the folder is made, too
  kLaterStep,  ///< good snapshots of earlier steps
  kSameStep,   ///< a good one of the same step as well
};

/// A test of a save in each of them.
class SaveIn : public ::testing::TestWithParam<Scene> {};

// Who wrote a snapshot is seen by its bytes.
constexpr int kOldSeed = 1, kNewSeed = 2;

constexpr std::int64_t kStep = 20;

/// Is the folder with both kinds of start; saved once, as that waits for the disk.
const fs::path& prepared(Scene scene) {
  static const testing::TemporaryFolder kDirectory;
  static const std::array kRuns = [] {
    const fs::path first = kDirectory.path() / "first";
    const fs::path later = kDirectory.path() / "later";
    const fs::path same = kDirectory.path() / "same";
    fs::create_directories(first);
    for (const std::int64_t step : {kStep - 2, kStep - 1}) save_snapshot(later, step, kOldSeed);
    SnapshotFolder(later).set_best(kStep - 2);
    fs::copy(later, same, fs::copy_options::recursive);
    save_snapshot(same, kStep, kOldSeed);
    return std::array{first, later, same};
  }();
  return kRuns[static_cast<std::size_t>(scene)];
}

/// A run in which one save meets a fault.
class RunUnderFault {
 public:
  explicit RunUnderFault(Scene scene) : scene_(scene) {
    fs::copy(prepared(scene), run(), fs::copy_options::recursive);
  }

  /// Returns the folder that holds the run's.
  const fs::path& path() const { return directory_.path(); }
  fs::path run() const { return directory_.path() / "run"; }

  /// Does what rank 0 does: commits a snapshot of kNewSeed, names it the best, prunes to one.
  void save() const {
    save_snapshot(run(), kStep, kNewSeed);
    const SnapshotFolder folder(run());
    folder.set_best(kStep);
    folder.prune(1, kStep);
  }

  /// Returns the seed of the newest snapshot, whose files must be whole and fit together. None may
  /// have been refused. Without any snapshot, which only Scene::kFirst may leave, it is kOldSeed.
  int newest_seed() const {
    const SnapshotChoice choice = SnapshotFolder(run()).newest();
    for (const SnapshotRefusal& refusal : choice.refused) ADD_FAILURE() << refusal.reason;
    if (choice.path.empty()) {
      EXPECT_EQ(scene_, Scene::kFirst);
      return kOldSeed;
    }
    EXPECT_EQ(choice.manifest.files.size(), 3U);
    const bool is_new = seed_of(choice.path) == kNewSeed;
    EXPECT_TRUE(is_new || seed_of(choice.path) == kOldSeed);
    const bool is_late = is_new || scene_ == Scene::kSameStep;
    EXPECT_EQ(choice.path.filename(), snapshot_name(is_late ? kStep : kStep - 1));
    return seed_of(choice.path);
  }

  /// Removes what is left over, looks that nothing strange is there, and saves again.
  void expect_that_life_goes_on() const {
    const SnapshotFolder folder(run());
    const int seed = newest_seed();
    folder.remove_leftovers();
    EXPECT_EQ(newest_seed(), seed) << "what was left over was none of the snapshots";
    EXPECT_TRUE(scene_ == Scene::kFirst || !folder.best().empty());
    if (fs::exists(folder.path())) {
      for (const auto& entry : fs::directory_iterator(folder.path())) {
        const std::string name = entry.path().filename().string();
        EXPECT_TRUE(step_of(name) || name == kLatest || name == kBest) << name;
        if (step_of(name)) verify_snapshot(entry.path());  // half a one must not look like one
      }
      if (fs::exists(folder.path() / kLatest)) {
        std::string latest;
        std::getline(std::ifstream(folder.path() / kLatest), latest);
        EXPECT_TRUE(fs::exists(folder.path() / latest)) << latest;
      }
    }
    const WatchedCalls without_waiting(
        path(), [](const SystemCall& call) { return call.name == "fsync" ? kPretended : kDone; });
    save_snapshot(run(), kStep + 1, kNewSeed);
    EXPECT_EQ(folder.newest().path, folder.path() / snapshot_name(kStep + 1));
    folder.prune(1, kStep + 1);
    EXPECT_EQ(seed_of(folder.newest().path), kNewSeed);
  }

 private:
  testing::TemporaryFolder directory_;
  Scene scene_;
};

/// The outcome of a save.
struct Outcome {
  bool had_fault = false;
  SystemCall fault;                        ///< the first call that failed
  bool is_committed = false;               ///< it went on to LATEST
  std::optional<std::system_error> error;  ///< nothing if the save succeeded
};

/// Saves; the call number `at` fails, or all from there on.
Outcome save_with_fault(const RunUnderFault& run, int at, int code, bool forever) {
  Outcome outcome;
  int calls = 0;
  const WatchedCalls watched(run.path(), [&](const SystemCall& call) {
    const int number = calls++;
    outcome.is_committed |= call.path.find("LATEST") != std::string::npos;
    const bool fails = number == at || (forever && number > at);
    if (number == at) {
      outcome.had_fault = true;
      outcome.fault = call;
    }
    if (fails) return code;
    return call.name == "fsync" ? int{kPretended} : int{kDone};
  });
  try {
    run.save();
  } catch (const std::system_error& error) {
    outcome.error = error;
  }
  return outcome;
}

/// Compares what a save said with what it left.
void expect_honesty(const RunUnderFault& run, const Outcome& outcome, int code, bool forever) {
  const int seed = run.newest_seed();
  if (!outcome.error) {
    EXPECT_EQ(seed, kNewSeed) << "it said that it succeeded";
    return;
  }
  EXPECT_EQ(outcome.error->code().value(), code);
  EXPECT_THAT(outcome.error->what(), HasSubstr(run.path().string()));
  // A disk that takes nothing any more does not let itself be put right, either.
  if (forever && !outcome.is_committed) return;
  EXPECT_EQ(seed, outcome.is_committed ? kNewSeed : kOldSeed) << outcome.error->what();
}

TEST_P(SaveIn, AFailedCallIsToldAndTheOldSnapshotStays) {
  constexpr std::array kCodes{ENOSPC, EDQUOT, EIO, EROFS};
  for (const bool forever : {false, true}) {
    int failed = 0;
    for (int at = 0;; ++at) {
      const RunUnderFault run(GetParam());
      const int code = kCodes[static_cast<std::size_t>(at + (forever ? 2 : 0)) % kCodes.size()];
      const Outcome outcome = save_with_fault(run, at, code, forever);
      if (!outcome.had_fault) break;
      SCOPED_TRACE(concat("errno ", code, forever ? " from " : " at ", outcome.fault.name, ' ',
          outcome.fault.path));
      failed += outcome.error.has_value() ? 1 : 0;
      expect_honesty(run, outcome, code, forever);
      run.expect_that_life_goes_on();
      if (HasFailure()) return;
    }
    EXPECT_GT(failed, 40);
  }
}

TEST_P(SaveIn, InterruptedAndShortCallsAreNoFailure) {
  const RunUnderFault run(GetParam());
  int interruptions = 0;
  std::string last;
  {
    const WatchedCalls watched(run.path(), [&](const SystemCall& call) {
      const bool can_be = call.name == "write" || call.name == "read" || call.name == "fsync" ||
                          call.name == "openat" || call.name == "create" || call.name == "close";
      const std::string now = call.name + call.path;
      // Twice each, then half of what was asked for.
      interruptions = now == last && interruptions < 3 ? interruptions + 1 : 0;
      last = now;
      if (can_be && interruptions < 2) return EINTR;
      if (call.name == "fsync") return int{kPretended};
      return int{testing::kShort};
    });
    run.save();
  }
  EXPECT_EQ(run.newest_seed(), kNewSeed);
  run.expect_that_life_goes_on();
}

/// Is a disk that syncs what it is told once, and then says that all is well.
TEST(FailedSync, IsNotTriedAgain) {
  const RunUnderFault run(Scene::kLaterStep);
  int syncs = 0;
  auto pending = PendingSnapshot::begin(SnapshotFolder(run.run()), 30);
  const WatchedCalls watched(run.path(), [&](const SystemCall& call) {
    if (call.name != "fsync") return int{kDone};
    return ++syncs == 1 ? EIO : int{kPretended};
  });
  EXPECT_THROW(pending.write("a", "text"), std::system_error);
  EXPECT_THROW(pending.write("b", "text"), InvalidArgument) << "this snapshot is lost";
  SnapshotManifest manifest{.step = 30, .libtorch = "2", .lockstep = {}, .files = {}};
  manifest.files.push_back({"a", 4, std::string(64, '0')});
  EXPECT_THROW(pending.commit(manifest), InvalidArgument);
  EXPECT_EQ(syncs, 1);
}

/// A file system that cannot exchange two folders, such as NFS.
class WithoutExchange : public ::testing::Test {
 protected:
  void save(int& renames) const {
    const WatchedCalls watched(run_.path(), [&](const SystemCall& call) {
      if (call.name == "exchange") return EINVAL;
      renames += call.name == "rename" ? 1 : 0;
      return int{kDone};
    });
    save_snapshot(run_.run(), 20, kNewSeed);
  }

  RunUnderFault run_{Scene::kSameStep};
};

TEST_F(WithoutExchange, AGoodSnapshotOfTheSameStepStays) {
  int renames = 0;
  save(renames);
  EXPECT_EQ(run_.newest_seed(), kOldSeed);
  EXPECT_EQ(renames, 2) << "the attempt, and LATEST";
  run_.expect_that_life_goes_on();
}

TEST_F(WithoutExchange, ABrokenSnapshotOfTheSameStepGoes) {
  fs::resize_file(run_.run() / "snapshots" / "step-00000020" / "state.json", 3);
  int renames = 0;
  save(renames);
  EXPECT_EQ(run_.newest_seed(), kNewSeed);
  run_.expect_that_life_goes_on();
}

class ForeignOwnerTest : public ::testing::Test {
 protected:
  RunUnderFault run_{Scene::kLaterStep};
  SnapshotFolder folder_{run_.run()};
  fs::path newest_ = folder_.newest().path;
};

TEST_F(ForeignOwnerTest, OfASnapshotOrItsFilesIsRefused) {
  for (const fs::path& path :
      {newest_, newest_ / "manifest.json", newest_ / "model.safetensors", newest_ / "state.json"}) {
    const testing::ForeignOwner foreign(path);
    const SnapshotChoice choice = folder_.newest();
    EXPECT_EQ(choice.path.filename(), "step-00000018") << "the older one serves";
    ASSERT_EQ(choice.refused.size(), 1U);
    EXPECT_EQ(choice.refused[0].name, newest_.filename());
    EXPECT_THAT(choice.refused[0].reason, HasSubstr(path.string() + ": belongs to user "));
    EXPECT_THROW(verify_snapshot(newest_), DataError);
  }
  EXPECT_EQ(verify_snapshot(newest_).step, 19);
}

TEST_F(ForeignOwnerTest, OfTheFolderOfSnapshotsIsRefused) {
  const testing::ForeignOwner foreign(folder_.path());
  EXPECT_THROW(folder_.newest(), DataError);
  EXPECT_THROW(folder_.best(), DataError);
  EXPECT_THROW(folder_.prune(1, 19), DataError);
  EXPECT_THROW(folder_.remove_leftovers(), DataError);
  EXPECT_THROW(PendingSnapshot::begin(folder_, 20), DataError);
}

TEST_F(ForeignOwnerTest, OfTheFileThatNamesTheBestIsRefused) {
  const testing::ForeignOwner foreign(folder_.path() / "best");
  EXPECT_THROW(folder_.best(), DataError);
  EXPECT_THROW(folder_.prune(1, 19), DataError) << "or it might remove the best one";
}

TEST_F(ForeignOwnerTest, OfWhatIsToBeReplacedOrJoinedIsRefused) {
  const auto pending = PendingSnapshot::begin(folder_, 20);
  {
    const testing::ForeignOwner foreign(pending.path());
    EXPECT_THROW(PendingSnapshot::join(pending.path()), DataError);
  }
  const testing::ForeignOwner foreign(newest_);
  EXPECT_THROW(PendingSnapshot::begin(folder_, 19), DataError);
}

/// Saves in a child process that is killed at its call number `at`, counted from 0, or torn at its
/// write of that number. Returns false if it made fewer.
bool killed_at(const RunUnderFault& run, int at, testing::Fate how) {
  const pid_t child = ::fork();
  if (child == 0) {
    int calls = 0;
    const WatchedCalls watched(run.path(), [&](const SystemCall& call) {
      const bool counts = how != testing::kTorn || call.name == "write";
      if (counts && calls++ == at) return how;
      // Other processes see what the kernel has in memory: no need to wait for the disk.
      return call.name == "fsync" ? kPretended : kDone;
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

/// Ends a save at each of its calls, which `ends_at` does, until it made fewer. Each time the old
/// or the new snapshot must be left; at least so many times the one and the other.
void expect_old_or_new(Scene scene,
    const std::function<bool(const RunUnderFault& run, int at)>& ends_at, int least_old,
    int least_fresh) {
  int old = 0, fresh = 0;
  for (int at = 0;; ++at) {
    SCOPED_TRACE("ended at call " + std::to_string(at));
    const RunUnderFault run(scene);
    if (!ends_at(run, at)) break;
    ++(run.newest_seed() == kOldSeed ? old : fresh);
    run.expect_that_life_goes_on();
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GE(old, least_old);
  EXPECT_GE(fresh, least_fresh);
}

TEST_P(SaveIn, AKilledProcessLeavesTheOldOrTheNewSnapshot) {
  const auto killed = [](testing::Fate how) {
    return [how](const RunUnderFault& run, int at) { return killed_at(run, at, how); };
  };
  expect_old_or_new(GetParam(), killed(testing::kKilled), 41, 9);
  expect_old_or_new(GetParam(), killed(testing::kTorn), 6, 1);
}

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

  void see(const SystemCall& call, long result) {
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
bool cut_at(const RunUnderFault& run, int at, Names names) {
  const fs::path left = run.path() / "left";
  const pid_t child = ::fork();
  if (child == 0) {
    int calls = 0;
    SyncedDisk disk(run.run());
    const WatchedCalls watched(
        run.path(),
        [&](const SystemCall& call) {
          if (calls++ == at) {
            disk.write_to(left, names);
            ::_exit(0);
          }
          return call.name == "fsync" ? kPretended : kDone;
        },
        [&](const SystemCall& call, long result) { disk.see(call, result); });
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

TEST_P(SaveIn, APowerCutLeavesTheOldOrTheNewSnapshot) {
  for (const Names names : {Names::kSynced, Names::kAll})
    expect_old_or_new(
        GetParam(), [&](const RunUnderFault& run, int at) { return cut_at(run, at, names); }, 41,
        9);
}

std::string name_of_scene(const ::testing::TestParamInfo<Scene>& info) {
  constexpr std::array kNames{"First", "LaterStep", "SameStep"};
  return kNames[static_cast<std::size_t>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Scenes, SaveIn,
    ::testing::Values(Scene::kFirst, Scene::kLaterStep, Scene::kSameStep), name_of_scene);

}  // namespace
}  // namespace lockstep
