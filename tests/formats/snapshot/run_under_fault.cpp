#include "tests/formats/snapshot/run_under_fault.h"

#include <fstream>

#include "tests/formats/snapshot/saved_snapshot.h"
#include "tests/formats/snapshot/system_calls.h"

#include "lockstep/snapshot/snapshot_check.h"
#include "lockstep/snapshot/snapshot_names.h"

namespace lockstep::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kStep = 20;

/// Is the folder with both kinds of start; saved once, as that waits for the disk.
const fs::path& prepared(Scene scene) {
  static const TemporaryFolder kDirectory;
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

}  // namespace

std::string name_of_scene(const ::testing::TestParamInfo<Scene>& info) {
  constexpr std::array kNames{"First", "LaterStep", "SameStep"};
  return kNames[static_cast<std::size_t>(info.param)];
}

RunUnderFault::RunUnderFault(Scene scene) : scene_(scene) {
  fs::copy(prepared(scene), run(), fs::copy_options::recursive);
}

void RunUnderFault::save() const {
  save_snapshot(run(), kStep, kNewSeed);
  const SnapshotFolder folder(run());
  folder.set_best(kStep);
  folder.prune(1, kStep);
}

int RunUnderFault::newest_seed() const {
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

void RunUnderFault::expect_that_life_goes_on() const {
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

}  // namespace lockstep::testing
